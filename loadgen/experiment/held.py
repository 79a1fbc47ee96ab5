"""How many sessions each arm holds within a limit on TTFT, from a sweep over concurrency."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from loadgen.experiment.spec import Experiment, Within
from loadgen.measure import metrics
from loadgen.report import words
from loadgen.report.columns import load
from loadgen.report.figures import figure
from loadgen.report.sides import Side
from loadgen.report.summary import member
from loadgen.report.worth import sessions_within


@dataclass(frozen=True)
class Held:
    """One arm under one setting of the other options.

    `sessions` is the largest load that met the limit (null: not even the smallest did), `missed` the smallest that did not
    (null: none of those that count), `unusable` the load from which on runs are missing or invalid: nothing from there on counts.
    """

    arm: str
    setting: str
    sessions: int | None
    missed: int | None
    unusable: int | None
    gpus: int

    @property
    def per_gpu(self) -> float | None:
        return None if self.sessions is None else self.sessions / self.gpus


def held(experiment: Experiment, sides: dict[str, list[Side]]) -> list[Held]:
    """Every arm's, in the order of the file; empty where the experiment names no limit. `sides` are those of each cell."""
    within = experiment.spec.within
    if within is None:
        return []
    option = within.load_option(experiment.spec.sweep)
    settings: dict[str, list[tuple[int, str]]] = {}  # of the other options: (load, cell)
    for cell in experiment.cells:
        if cell.kind == "measure":
            name = ", ".join(f"{key}={value}" for key, value in cell.values.items() if key != option)
            settings.setdefault(name, []).append((int(cell.values[option]), cell.name))
    return [
        _held(
            arm.name,
            name,
            [(n, sides[cell][place] if cell in sides else None) for n, cell in sorted(loads)],
            within,
        )
        for name, loads in settings.items()
        for place, arm in enumerate(experiment.spec.arms)
    ]


def _held(arm: str, setting: str, loads: Sequence[tuple[int, Side | None]], within: Within) -> Held:
    times: dict[int, list[float | None]] = {}
    unusable = None
    for sessions, side in loads:
        if side is None or side.reasons:
            unusable = sessions
            break
        times[sessions] = _ttft_s(side, within)
    best = sessions_within(times, within.ttft_s, within.share)
    missed = next((n for n in times if best is None or n > best), None)
    return Held(arm, setting, best, missed, unusable, within.gpus)


def _ttft_s(side: Side, within: Within) -> list[float | None]:
    """TTFTs of all runs of a side, endpoint seconds; null for a turn without a first token."""
    found: list[float | None] = []
    for folder, info in zip(side.folders, side.infos, strict=True):
        turns = load(folder, info)
        us, has = figure(turns, metrics.TTFT, info.endpoint.time_scale)
        for row in np.flatnonzero(member(turns, within.turns)):
            found.append(float(us[row]) / 1e6 if has[row] else None)
    return found


def sentences(experiment: Experiment, found: Sequence[Held]) -> list[str]:
    """What the limit is, then a line an arm."""
    within = experiment.spec.within
    if within is None or not found:
        return []
    closed = experiment.spec.workload.get("schedule") == "closed"
    unit = "live sessions" if closed else "turns in flight"
    of = "turns" if within.turns == "all" else f"{within.turns} turns"
    lines = [
        f"{unit} with a first token within {words.seconds(within.ttft_s)} on {words.share(within.share)} of the {of}:"
    ]
    for one in found:
        name = f"{one.arm}, {one.setting}" if one.setting else one.arm
        if one.sessions is None:
            text = "none" if one.missed is None else f"not even {one.missed}"
        else:
            text = f"{one.sessions}" + ("" if one.missed is not None else ", the most that counts")
            if one.gpus > 1:
                text += f" ({words.number(one.per_gpu)} a GPU)"
            if one.missed is not None:
                text += f"; {one.missed} missed it"
        if one.unusable is not None and one.missed is None:
            text += f"; runs from {one.unusable} on are missing or invalid"
        lines.append(f"  {name}: {text}")
    return lines
