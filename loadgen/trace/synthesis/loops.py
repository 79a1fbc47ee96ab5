"""How often sessions go back to their human: the distribution of their own rates, free of the luck of short ones.

The share of human steps in a session of ten steps is 0, 0.1 or 0.2, whatever its user's habit. Rates are modelled as
beta-distributed with binomial counts (moments after Kleinman 1973), then brought nearer to the data by a few steps of
expectation maximization on a grid, which let the table have a shape that no beta has.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadgen.trace.features import Conversation
from loadgen.trace.synthesis.habits import NORMAL
from loadgen.trace.synthesis.profile import GRID, Table, table

Floats = npt.NDArray[np.float64]
_CELLS = 400
_ROUNDS = 10
_STEPS = 5  # many would gather the rates at few values
_SAMPLE = 4000
_POINTS = 100
_MOST = 0.9


@dataclass(frozen=True, slots=True)
class Loops:
    """`rates`: by session; `factors`: (turn from, factor on the rate); `scores`: the normal score of each session's rate
    among all, as expected from what it tells: near 0 for short ones, so of a variance below 1. `with_length`: correlation
    of the scores of rates and lengths.
    """

    rates: Table
    factors: list[tuple[float, float]]
    scores: Floats
    with_length: float


def fit_loops(found: Sequence[Conversation], begins: Sequence[int]) -> Loops:
    """`begins`: turns from which the rate may differ. Rates are those of the turns from the last of these on."""
    turns = [np.array([s.index for s in c.steps[1:]]) for c in found]
    came = [np.array([s.gap_kind == "human" for s in c.steps[1:]], dtype=np.float64) for c in found]
    place = [np.searchsorted(begins, row, side="right") for row in turns]
    human = np.array([row.sum() for row in came])
    factors = np.ones(len(begins) + 1)
    if human.sum() == 0:
        return Loops(table([0.0]), [(0.0, 1.0)], np.zeros(len(found)), 0.0)
    rates, scores, steps = table([0.0]), np.zeros(len(found)), np.zeros(len(found))
    seen = sum(np.bincount(a, weights=b, minlength=len(factors)) for a, b in zip(place, came, strict=True))
    for _ in range(_ROUNDS):
        steps = np.array([factors[row].sum() for row in place])
        rates, expected, scores = _rates(human, np.maximum(steps, human))
        tried = sum(
            rate * np.bincount(row, minlength=len(factors)) for rate, row in zip(expected, place, strict=True)
        )
        factors = np.where(tried > 0, seen / np.maximum(tried, 1e-9), 1.0)
        factors /= factors[-1] if factors[-1] > 0 else 1.0
    steps_of = [(0.0, float(factors[1])), *zip(map(float, begins[1:]), map(float, factors[2:]), strict=True)]
    return Loops(
        rates, [(begin, round(f, 4)) for begin, f in steps_of], scores, _with_length(steps, rates, human)
    )


def _rates(human: Floats, steps: Floats) -> tuple[Table, Floats, Floats]:
    """The table, and each session's expected rate and score, of counts in steps."""
    if human.sum() >= steps.sum():
        return table([1.0]), np.ones(len(human)), np.zeros(len(human))
    # equal cells in the rate's square root: most rates are small
    grid = ((np.arange(_CELLS) + 0.5) / _CELLS) ** 2
    a, b = _beta(human, steps)
    prior = np.log(grid) * (a - 1) + np.log1p(-grid) * (b - 1) + 0.5 * np.log(grid)
    told = human[:, None] * np.log(grid) + (steps - human)[:, None] * np.log1p(-grid)
    mass = np.exp(prior - prior.max())
    for _ in range(_STEPS):
        chance = np.exp(told - told.max(axis=1, keepdims=True)) * mass
        chance /= chance.sum(axis=1, keepdims=True)
        mass = chance.mean(axis=0)
    below = np.cumsum(mass)
    picks = np.searchsorted(below, (np.arange(_SAMPLE) + 0.5) / _SAMPLE * below[-1])
    rates = table([float(grid[min(pick, _CELLS - 1)]) for pick in picks])
    middles = np.clip((below - mass / 2) / below[-1], 1e-9, 1 - 1e-9)
    return rates, chance @ grid, chance @ np.array([NORMAL.inv_cdf(middle) for middle in middles])


def _with_length(steps: Floats, rates: Table, human: Floats) -> float:
    """The correlation with which the sessions' lengths and rates give as many human turns as there are.

    By their sum, not by ranks: few long sessions have most of the steps, and theirs is the share that a trace shows.
    """
    u = (np.arange(_POINTS) + 0.5) / _POINTS
    z = np.array([NORMAL.inv_cdf(share) for share in u])
    lengths = np.quantile(steps, u)
    line = np.linspace(-8, 8, 1601)
    cdf = np.array([NORMAL.cdf(x) for x in line])
    low, high = -_MOST, _MOST
    for _ in range(20):
        middle = (low + high) / 2
        scores = middle * z[:, None] + np.sqrt(1 - middle**2) * z[None, :]
        expected = np.interp(np.interp(scores, line, cdf), GRID, rates).mean(axis=1)
        low, high = (low, middle) if (expected * lengths).mean() > human.mean() else (middle, high)
    return (low + high) / 2


def _beta(human: Floats, steps: Floats) -> tuple[float, float]:
    """Parameters of the beta from counts, sessions weighed by their steps."""
    told = steps > 0
    k, n = human[told], steps[told]
    mean = k.sum() / n.sum()
    weights = n / n.sum()
    spread = float((weights * (k / n - mean) ** 2).sum())
    luck = mean * (1 - mean) * float((weights * (1 - weights) / n).sum())
    whole = mean * (1 - mean) * float((weights * (1 - weights) * (1 - 1 / n)).sum())
    alike = min(max((spread - luck) / whole if whole > 0 else 0.0, 0.001), 0.9)
    total = 1 / alike - 1
    return float(mean * total), float((1 - mean) * total)
