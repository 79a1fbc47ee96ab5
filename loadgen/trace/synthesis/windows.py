"""Where sessions compact: a window each that few ever show, estimated as lifetimes are.

A session's window is the prompt at which its client compacts. Sessions that ended before they came so far say only that
theirs is larger than their largest prompt, and a compaction says that it lies within the append before: both are censored,
and the self-consistent estimator (Turnbull 1976) gives the windows' distribution from them. Compactions at prompts where
they are rare, or far below what the session held elsewhere, were asked for by a person or a tool, and are a chance a step.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from loadgen.trace.features import Conversation, Step
from loadgen.trace.synthesis.profile import Window

_REACH = 5  # turns with a prompt of at least this show that the session's window is larger; one may be an overshoot
_BELOW = 1.3  # and a compaction is early when that is so much larger
_EVENTS = 200
_SURE = 6.0  # gain in log likelihood that a change point must bring: two parameters more
_ROUNDS = 10  # further ones would gather the windows at few prompts
_QUARTILES = 2 * NormalDist().inv_cdf(0.75)
_STEP = 0.02  # of the sessions, between the prompts that are written down
_EDGE = 0.01  # how far below the smallest window seen windows begin


def fit_window(found: Sequence[Conversation]) -> Window:
    """Of sessions with a step each at least."""
    begin = _begin(found)
    lives: list[tuple[float, float]] = []
    spreads: list[float] = []
    events: list[Step] = []
    early = {"tool": 0, "human": 0}
    for c in found:
        prompts = sorted((s.prompt for s in c.steps), reverse=True)
        reach = prompts[min(_REACH, len(prompts)) - 1]
        full: list[tuple[int, int]] = []
        for last, s in zip(c.steps, c.steps[1:], strict=False):
            if s.kind != "compaction":
                continue
            events.append(s)
            if s.before < begin or s.before * _BELOW < reach:
                early[_gap(s)] += 1
            else:
                full.append((min(last.before, s.before - 1), s.before))
        lives.append(full[0] if full else (prompts[0], math.inf))
        spreads.extend(math.log(b / full[0][1]) for _, b in full[1:])
    steps = {gap: sum(_gap(s) == gap for c in found for s in c.steps[1:]) for gap in early}
    at = _windows(lives)
    largest = float(max(s.prompt for c in found for s in c.steps))
    if at and largest > at[-1][0] and at[-1][1] < 1:
        # beyond the last compaction nothing is known; no session is to grow beyond what the trace has seen
        at.append((largest, 1.0))
    return Window(
        at=at,
        spread=round(_deviation(spreads), 4),
        early_tool=round(early["tool"] / max(steps["tool"], 1), 6),
        early_human=round(early["human"] / max(steps["human"], 1), 6),
        events=sample(events, _EVENTS),
    )


def _begin(found: Sequence[Conversation]) -> float:
    """The prompt from which on compactions are frequent: the first change point of their chance a step.

    Change points are sought by likelihood, each below the one before, while two chances tell more than one; 0 where
    none does.
    """
    later = sorted((s.before, s.kind == "compaction") for c in found for s in c.steps[1:])
    begin = 0.0
    while (point := _change(later)) is not None:
        begin = float(later[point][0])
        later = later[:point]
    return begin


def _change(later: Sequence[tuple[int, bool]]) -> int | None:
    """The first step of the more frequent part of a row by prompt; null where there is no such part."""
    hits = np.cumsum([compacted for _, compacted in later])
    if len(hits) < 2 or not hits[-1]:
        return None
    steps = np.arange(1, len(later) + 1)
    k, n = hits[:-1], steps[:-1]
    over, rest = hits[-1] - k, steps[-1] - n
    gain = _told(k, n) + _told(over, rest) - float(_told(hits[-1:], steps[-1:])[0])
    gain = np.where(over * n > k * rest, gain, -np.inf)
    best = int(np.argmax(gain))
    return best + 1 if gain[best] > _SURE else None


def _told(k: npt.NDArray[np.int64], n: npt.NDArray[np.int64]) -> npt.NDArray[np.float64]:
    """Log likelihood of k compactions in n steps at a chance of their own, in Poisson's form."""
    return np.asarray(k * np.log(np.maximum(k, 1) / n))


def sample(steps: Sequence[Step], most: int) -> list[tuple[int, int, int]]:
    """(prompt before, tokens kept, prompt after) of at most so many steps, by size of the prompt before."""
    rows = sorted((s.before, s.kept, s.prompt) for s in steps)
    return rows if len(rows) <= most else [rows[i * len(rows) // most] for i in range(most)]


def _gap(step: Step) -> str:
    return "human" if step.gap_kind == "human" else "tool"


def _deviation(differences: Sequence[float]) -> float:
    """Of one draw, from differences of two: half the variance. By quartiles, for some are compactions on demand."""
    if not differences:
        return 0.0
    low, high = np.quantile(differences, (0.25, 0.75))
    return float(high - low) / (_QUARTILES * math.sqrt(2))


def _windows(lives: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """(prompt, share of windows at most that), of windows that are each above `a` and at most `b`."""
    places = np.unique([b for _, b in lives if b < math.inf])
    if not len(places):
        return []
    cells = np.append(places, math.inf)
    rows = np.array(lives)
    within = (cells[None, :] > rows[:, :1]) & (cells[None, :] <= rows[:, 1:])
    mass = np.full(len(cells), 1 / len(cells))
    for _ in range(_ROUNDS):
        held = within * mass
        mass = (held / held.sum(axis=1, keepdims=True)).mean(axis=0)
    found = [(float(places[0]) * (1 - _EDGE), 0.0)]
    for prompt, share in zip(places, np.cumsum(mass[:-1]), strict=True):
        if share - found[-1][1] >= _STEP or prompt == places[-1]:
            found.append((float(prompt), round(float(share), 4)))
    return found
