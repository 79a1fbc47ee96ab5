"""What steps append: tables by the turn and by the prompt that it adds to.

Sessions load their task early, once: who has loaded it appends less. Late, large appends come from sessions that have
just compacted and, beyond the usual window, from those with a larger one; others have no room for them.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.trace.features import Step
from loadgen.trace.synthesis.profile import Append, table

FROM = (1, 2, 3, 5, 10, 20)
STEADY = 10
"""The turn from which on a session's appends show its own growth; those before load its task and say little of it."""

_HUMAN_FROM = (1, 10)
_PARTS = 5  # by prompt, of equal numbers of steps
_LATE = (0.05, 0.35, 0.65, 0.97)  # shares of the prompts at which the tables of steady turns part instead
_CELL = 100  # steps that a table is made of at least; a tail needs them


@dataclass(frozen=True, slots=True)
class Cell:
    """The steps of one table: turns [turn, end), prompts before from `prompt` to below `most`."""

    turn: int
    end: int
    prompt: int
    most: int

    def holds(self, step: Step) -> bool:
        return self.turn <= step.index < self.end and self.prompt <= step.before < self.most


@dataclass(frozen=True, slots=True)
class Loading:
    """What the scores of a cell's appends have of habits and runs, as `Append` holds it."""

    growth: float = 0.0
    run: float = 0.0
    level: float = 0.0


def tool_cells(steps: Sequence[Step]) -> list[Cell]:
    """Of the tool steps' appends, by turn and prompt."""
    cells = []
    for turn, end in zip(FROM, [*FROM[1:], sys.maxsize], strict=True):
        before = [s.before for s in steps if turn <= s.index < end and extends(s) and s.gap_kind != "human"]
        parts = min(_PARTS, len(before) // _CELL)
        shares = [part / parts for part in range(1, parts)]
        if turn >= STEADY and len(before) * _LATE[0] >= _CELL:
            shares = list(_LATE)
        edges = (
            [0, *(round(float(edge)) for edge in np.unique(np.quantile(before, shares)))] if shares else [0]
        )
        cells += [
            Cell(turn, end, a, b) for a, b in zip(edges, [*edges[1:], sys.maxsize], strict=True) if a < b
        ]
    return cells


def extends(step: Step) -> bool:
    return step.kind == "extend"


def tool_appends(steps: Sequence[Step], cells: Sequence[Cell], loadings: Sequence[Loading]) -> list[Append]:
    """One table a cell that holds anything."""
    rows: list[Append] = []
    for cell, loading in zip(cells, loadings, strict=True):
        inside = [s for s in steps if extends(s) and s.gap_kind != "human" and cell.holds(s)]
        if inside or not rows:
            rows.append(
                Append(
                    turn=cell.turn,
                    prompt=cell.prompt,
                    tokens=table(_added(inside)),
                    growth=loading.growth,
                    run=loading.run,
                    level=loading.level,
                )
            )
    return rows


def human_appends(steps: Sequence[Step]) -> list[Append]:
    rows: list[Append] = []
    for turn, end in zip(_HUMAN_FROM, [*_HUMAN_FROM[1:], sys.maxsize], strict=True):
        inside = [s for s in steps if extends(s) and s.gap_kind == "human" and turn <= s.index < end]
        if inside or not rows:
            rows.append(Append(turn=turn, tokens=table(_added(inside))))
    return rows


def _added(steps: Sequence[Step]) -> list[float]:
    return [max(0, s.prompt - s.before) for s in steps]
