"""Presets that come from published figures, as changes of `heavy`. `python -m loadgen.trace.synthesis.derive` writes them.

`heavy` itself is `loadgen trace fit TRACE --name heavy --shared-prefix 15100`, with the 710 readable traces of
kv-cache-tester as TRACE.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist

import msgspec

from loadgen.trace.synthesis.profile import (
    GRID,
    HABITS,
    Alike,
    Append,
    Profile,
    Table,
    Window,
    load_profile,
    save_profile,
)

Mixture = Sequence[tuple[float, float, float]]
"""(weight, median, sigma of the logarithm) of lognormal parts."""

_EDGE = 1e-4  # the grid's 0 and 1 stand for these quantiles of an endless distribution
# Fits to TraceLab's published quantiles (arXiv 2606.30560): tool time p50 0.3, p90 13.6, p99 216 s; human wait p50 86 s,
# p90 20.6 min, p99 13.9 h
_TOOL_S: Mixture = ((0.57, 0.08, 1.2), (0.37, 3.0, 1.3), (0.06, 70.0, 1.6))
_HUMAN_S: Mixture = ((0.94, 75.0, 1.6), (0.06, 10_000.0, 1.5))
# half of TraceLab's sessions have one human turn; 8.8 steps a human turn on average
_LOOP_END: Table = [*([0.0] * 9), 0.03, 0.06, 0.1, 0.18, 0.3, 0.5, 0.6, 0.7, 0.9, 0.95, 1.0]
_EVEN = [(0.0, 1.0)]  # a factor of 1 from 0 on


def mixture_table(parts: Mixture, cap: float, whole: bool = False) -> Table:
    """Quantiles of a lognormal mixture on GRID, by bisection of its distribution function."""
    normals = [(weight, NormalDist(math.log(median), sigma)) for weight, median, sigma in parts]
    found = []
    for q in GRID:
        target = min(max(q, _EDGE), 1 - _EDGE)
        low, high = -30.0, 30.0
        for _ in range(80):
            middle = (low + high) / 2
            below = sum(weight * normal.cdf(middle) for weight, normal in normals)
            low, high = (middle, high) if below < target else (low, middle)
        value = min(math.exp(high), cap)
        found.append(float(max(1, round(value))) if whole else round(value, 3))
    return found


def _alone(habits: list[list[float]], habit: str) -> list[list[float]]:
    """The correlations with one habit's taken out."""
    place = HABITS.index(habit)
    return [
        [r if i == j or place not in (i, j) else 0.0 for j, r in enumerate(row)]
        for i, row in enumerate(habits)
    ]


def day_to_day(heavy: Profile) -> Profile:
    """Session lengths, human turns and waits as TraceLab published them; all else as heavy."""
    main = msgspec.structs.replace(
        heavy.main,
        requests=mixture_table(((1.0, 16.0, 1.75),), 2000, whole=True),
        stops=_EVEN,  # the published lengths are those that came about
        loop_end=_LOOP_END,
        loop_end_at=_EVEN,
        habits=_alone(heavy.main.habits, "loop_end"),  # nothing is published on who goes with whom
        gap_tool_s=mixture_table(_TOOL_S, 14_400),
        gap_human_s=mixture_table(_HUMAN_S, 172_800),
    )
    subs = heavy.sub_agents
    if subs is not None:
        agent = msgspec.structs.replace(subs.agent, gap_tool_s=main.gap_tool_s)
        subs = msgspec.structs.replace(subs, agent=agent)
    source = "TraceLab, arXiv 2606.30560 (published figures: requests, human turns, tool and human times); all else as heavy"
    return msgspec.structs.replace(heavy, name="day-to-day", source=source, main=main, sub_agents=subs)


def benchmark(heavy: Profile) -> Profile:
    """SWE-type runs: one human turn, no compaction; from data cards and the vLLM blog of 2026-05, not fitted."""
    size = range(len(HABITS))
    main = msgspec.structs.replace(
        heavy.main,
        requests=mixture_table(((1.0, 33.0, 0.45),), 400, whole=True),
        stops=_EVEN,
        first=mixture_table(((1.0, 12_000.0, 0.35),), 40_000, whole=True),
        loop_end=[0.0] * len(GRID),
        loop_end_at=_EVEN,
        habits=[[float(i == j) for j in size] for i in size],
        alike=Alike(decay=0.0, answer=0.0),
        append_tool=[Append(turn=1, tokens=mixture_table(((1.0, 700.0, 1.3),), 60_000, whole=True))],
        append_human=[Append(turn=1, tokens=[0.0] * len(GRID))],
        gap_tool_s=mixture_table(((0.9, 0.15, 1.0), (0.1, 10.0, 1.5)), 3600),
        gap_human_s=[0.0] * len(GRID),
        leaves=[],
        window=Window(at=[], spread=0.0, early_tool=0.0, early_human=0.0, events=[]),
    )
    source = "cards of SWE-type data sets and the vLLM blog of 2026-05 (published figures, not fitted); answers as heavy"
    return msgspec.structs.replace(
        heavy, name="benchmark", source=source, main=main, sub_agents=None, shared_prefix=8000
    )


if __name__ == "__main__":
    folder = Path(__file__).parent / "presets"
    for made in (day_to_day(load_profile("heavy")), benchmark(load_profile("heavy"))):
        save_profile(made, folder / f"{made.name}.json")
