"""Does a synthetic trace look like its source? One figure a row, with the source's bootstrap interval over sessions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadgen.errors import InputError
from loadgen.trace.features import Conversation
from loadgen.trace.synthesis.fit import START, fresh

Floats = npt.NDArray[np.float64]
RESAMPLES = 200
LEVEL = 0.95
LEAST = 10
"""Sessions of a side; of fewer, a bootstrap tells nothing."""


@dataclass(frozen=True, slots=True)
class Row:
    """`source` with the 95 % percentile interval of a bootstrap over its sessions; null where nothing is to be told."""

    name: str
    source: float | None
    low: float | None
    high: float | None
    synthetic: float | None

    @property
    def inside(self) -> bool | None:
        if self.synthetic is None or self.low is None or self.high is None:
            return None
        return self.low <= self.synthetic <= self.high


def outside(rows: Sequence[Row]) -> int:
    """How many figures lie outside of the source's interval.

    Not 5 %, even of a perfect model of one half held against the other: the interval is that of the source's own noise,
    and the model's half has as much. The difference is √2 as wide, so about 17 % of independent figures leave it. What
    `conform(other half, half)` gives is what a perfect model would come to.
    """
    return sum(row.inside is False for row in rows)


@dataclass(frozen=True, slots=True)
class Figure:
    """`values` of each session, and what is made of those of all sessions together. Null where there are none."""

    values: Callable[[Conversation], Sequence[float]]
    reduce: Callable[[Floats], float]


def figures(found: Sequence[Conversation]) -> dict[str, float | None]:
    """All figures of the fresh main sessions."""
    sessions = fresh(found)
    return {
        name: _reduced(figure, [np.asarray(figure.values(c), dtype=np.float64) for c in sessions])
        for name, figure in FIGURES.items()
    }


def told(rows: Sequence[Row]) -> list[Row]:
    """The rows whose source has the figure: of the others nothing can be said, and they do not count as met."""
    return [row for row in rows if row.source is not None]


def conform(
    source: Sequence[Conversation],
    synthetic: Sequence[Conversation],
    seed: int = 0,
    sides: tuple[str, str] = ("the source", "the synthetic trace"),
) -> list[Row]:
    """Figures of the fresh main sessions of both. `sides`: words for them. Raises InputError below 10 sessions on a side."""
    ours, theirs = fresh(synthetic), fresh(source)
    if len(ours) < LEAST or len(theirs) < LEAST:
        raise InputError(
            f"a comparison needs {LEAST} sessions {START} on each side; "
            f"{sides[0]} has {len(theirs)} and {sides[1]} {len(ours)}"
        )
    rng = np.random.default_rng(seed)
    picks = rng.integers(0, len(theirs), (RESAMPLES, len(theirs)))
    made = figures(synthetic)
    rows = []
    for name, figure in FIGURES.items():
        parts = [np.asarray(figure.values(c), dtype=np.float64) for c in theirs]
        values = [v for pick in picks if (v := _reduced(figure, [parts[i] for i in pick])) is not None]
        low, high = (
            (float(np.quantile(values, q)) for q in ((1 - LEVEL) / 2, (1 + LEVEL) / 2))
            if values
            else (None, None)
        )
        rows.append(Row(name, _reduced(figure, parts), low, high, made[name]))
    return rows


def _reduced(figure: Figure, parts: Sequence[Floats]) -> float | None:
    together = np.concatenate(parts) if parts else np.empty(0)
    return float(figure.reduce(together)) if len(together) else None


def _quantile(q: float) -> Callable[[Floats], float]:
    return lambda values: float(np.quantile(values, q))


def _mean(values: Floats) -> float:
    return float(np.mean(values))


def _ratio(values: Floats) -> float:
    """Of sums: each session gives a numerator and a denominator."""
    return float(values[0::2].sum() / max(values[1::2].sum(), 1.0))


def _requests(c: Conversation) -> list[float]:
    return [len(c.steps)]


def _largest(c: Conversation) -> list[float]:
    return [max(s.prompt for s in c.steps)]


def _new(c: Conversation) -> list[float]:
    return [s.new for s in c.steps[1:]]


def _output(c: Conversation) -> list[float]:
    return [s.output for s in c.steps if s.output is not None]


def _human(c: Conversation) -> list[float]:
    return [1 + sum(s.gap_kind == "human" for s in c.steps)]


def _hits(c: Conversation) -> list[float]:
    """Shared and all tokens, within the session only: a source whose ids are local to a file can show no other."""
    total = sum(s.prompt for s in c.steps)
    return [total - c.steps[0].prompt - sum(s.new for s in c.steps[1:]), total]


def _compactions(c: Conversation) -> list[float]:
    return [1000 * sum(s.kind == "compaction" for s in c.steps), len(c.steps)]


def _at(number: int) -> Figure:
    return Figure(lambda c: [c.steps[number - 1].prompt] if len(c.steps) >= number else [], _quantile(0.5))


def _gap(kind: str, q: float) -> Figure:
    return Figure(
        lambda c: [s.gap_s for s in c.steps if s.gap_kind == kind and s.gap_s is not None], _quantile(q)
    )


FIGURES: dict[str, Figure] = {
    "requests p50": Figure(_requests, _quantile(0.5)),
    "requests mean": Figure(_requests, _mean),
    "requests p90": Figure(_requests, _quantile(0.9)),
    "first prompt p50": Figure(lambda c: [c.steps[0].prompt], _quantile(0.5)),
    **{f"context at {n} p50": _at(n) for n in (5, 10, 20, 30, 50, 75, 100)},
    **{f"largest context p{q}": Figure(_largest, _quantile(q / 100)) for q in (50, 90, 95, 99)},
    **{f"new tokens p{q}": Figure(_new, _quantile(q / 100)) for q in (50, 90, 99)},
    "output p50": Figure(_output, _quantile(0.5)),
    "output mean": Figure(_output, _mean),
    "output p99": Figure(_output, _quantile(0.99)),
    "human turns p50": Figure(_human, _quantile(0.5)),
    "human turns mean": Figure(_human, _mean),
    "hit share, all tokens": Figure(_hits, _ratio),
    "hit share p50": Figure(lambda c: [_ratio(np.array(_hits(c), dtype=np.float64))], _quantile(0.5)),
    "sessions with a compaction": Figure(
        lambda c: [float(any(s.kind == "compaction" for s in c.steps))], _mean
    ),
    "compactions per 1000": Figure(_compactions, _ratio),
    "tool gap p50 s": _gap("tool", 0.5),
    "tool gap p90 s": _gap("tool", 0.9),
    "human gap p50 s": _gap("human", 0.5),
    "human gap p90 s": _gap("human", 0.9),
}
