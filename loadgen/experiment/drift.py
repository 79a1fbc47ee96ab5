"""Do a run's place in its block and the arm before it matter? Looked at, never corrected for: a balanced order takes them out.

One least-squares fit over all cells and arms, log(figure) = own cell and arm + b1 (position) + b2 (another arm came before), so that
neither covariate is taken for the other and a slow cell or arm for neither.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import scipy

from loadgen.report.compare import describe_ratio

LEVEL = 0.95
_DUST = 1e-9  # rounding, where runs have no noise at all


class Placed(NamedTuple):
    """One run: its position within its block, the arm that ran before it on this machine (null: nothing did), its figure."""

    position: int
    previous: str | None
    figure: float


@dataclass(frozen=True)
class Covariate:
    """What one covariate does to the figure: `ratio` with its 95 % interval, from `runs` runs."""

    name: str
    ratio: float
    low: float
    high: float
    runs: int
    seen: bool  # the interval leaves out 1
    sentence: str


_WORDS = {
    "position": ("order", "a run that goes last in its block", "one that goes first"),
    "previous arm": ("carry-over", "a run that follows another arm's", "one that follows its own arm's"),
}


def covariates(runs: Mapping[tuple[str, str], Sequence[Placed]]) -> list[Covariate]:
    """The covariates that these runs can tell, by (cell, arm); those that they cannot are left out.

    A run that followed nothing is left out, and so is a covariate that did not vary within any cell and arm, or only
    together with the one before it.
    """
    last = max((run.position for placed in runs.values() for run in placed), default=0)
    x: list[list[float]] = []  # each run's covariates, less the mean of its cell and arm
    y: list[float] = []
    strata = 0
    for (_, arm), everything in runs.items():
        placed = [run for run in everything if run.previous is not None]
        if len(placed) < 2:
            continue
        strata += 1
        rows = np.array([[run.position / max(last, 1), float(run.previous != arm)] for run in placed])
        logs = np.log([run.figure for run in placed])
        x.extend((rows - rows.mean(axis=0)).tolist())
        y.extend((logs - logs.mean()).tolist())
    names = list(_WORDS)
    kept: list[int] = []
    for column in range(len(names)):
        if x and np.linalg.matrix_rank(np.array(x)[:, [*kept, column]], tol=1e-9) > len(kept):
            kept.append(column)
    df = len(y) - strata - len(kept)
    if not kept or df < 1:
        return []
    design, response = np.array(x)[:, kept], np.array(y)
    slopes, *_ = np.linalg.lstsq(design, response, rcond=None)
    variance = float(((response - design @ slopes) ** 2).sum()) / df
    errors = np.sqrt(variance * np.diag(np.linalg.inv(design.T @ design)))
    reach = float(scipy.stats.t.ppf((1 + LEVEL) / 2, df))
    return [
        _covariate(names[column], float(slope), reach * float(error), len(y))
        for column, slope, error in zip(kept, slopes, errors, strict=True)
    ]


def _covariate(name: str, slope: float, half: float, runs: int) -> Covariate:
    ratio, low, high = (math.exp(value) for value in (slope, slope - half, slope + half))
    kind, one, other = _WORDS[name]
    seen = low > 1 + _DUST or high < 1 - _DUST
    article = "no" if not seen else "an" if kind == "order" else "a"
    sentence = (
        f"{article} {kind} effect is seen: {one} {describe_ratio(ratio)} {other} "
        f"(95 % interval of the ratio {low:.3f} to {high:.3f})"
    )
    return Covariate(name, ratio, low, high, runs, seen, sentence)
