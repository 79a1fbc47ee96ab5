"""How long sessions last: a table of lengths, and how the prompt's size changes the chance to stop.

Proportional hazards: the chance that a session stops after its n-th turn is h(n) · f(prompt), with f a step function.
Both are solved for in turn: h by Breslow's estimator (1974), weighted with f; f as stops seen over stops expected.
A session that its user ends at its window's edge thus does not make the table of lengths shorter, and fast growers end
earlier because they come to large prompts, as in the source.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadgen.trace.features import Conversation
from loadgen.trace.synthesis.profile import Table, table

Floats = npt.NDArray[np.float64]
_STOPS = 12  # of a step of f: its relative error is then under a third
_PRIOR = 0.5  # stops at factor 1 that each step of f is given beforehand
_ROUNDS = 50
_SAMPLE = 4000


@dataclass(frozen=True, slots=True)
class Lengths:
    """`requests` and `stops` as the profile has them; `residuals`: by session, the cumulative hazard that it bore.

    Residuals are exponential where the model holds (Cox and Snell 1968).
    """

    requests: Table
    stops: list[tuple[float, float]]
    residuals: Floats


def fit_lengths(found: Sequence[Conversation]) -> Lengths:
    """Of sessions with a step each at least."""
    counts = np.array([len(c.steps) for c in found])
    prompts = np.array([s.prompt for c in found for s in c.steps], dtype=np.float64)
    turns = np.concatenate([np.arange(n) for n in counts])
    last = np.cumsum(counts) - 1
    begins = _begins(np.sort(prompts[last]))
    place = np.searchsorted(begins, prompts, side="right") - 1
    seen = np.bincount(place[last], minlength=len(begins)).astype(np.float64)
    ends = np.bincount(counts - 1, minlength=int(counts.max())).astype(np.float64)
    factors = np.ones(len(begins))
    hazard = np.zeros(len(ends))
    for _ in range(_ROUNDS):
        hazard = np.minimum(ends / np.bincount(turns, weights=factors[place]), 1.0)
        expected = np.bincount(place, weights=hazard[turns], minlength=len(begins))
        factors = (seen + _PRIOR) / (expected + _PRIOR)
        factors /= factors[place].mean()  # else h and f could trade a constant
    lasts = 1 - np.cumprod(1 - hazard)
    picks = np.searchsorted(lasts, (np.arange(_SAMPLE) + 0.5) / _SAMPLE)
    requests = table([float(min(pick, len(ends) - 1) + 1) for pick in picks])
    borne = np.cumsum(factors[place] * hazard[turns])
    residuals = borne[last] - np.concatenate([[0.0], borne[last[:-1]]])
    stops = [(float(begin), round(float(f), 4)) for begin, f in zip(begins, factors, strict=True)]
    return Lengths(requests, stops, residuals)


def _begins(prompts: Floats) -> Floats:
    """Where the steps of f begin: each holds the last prompts of about `_STOPS` sessions."""
    steps = max(1, len(prompts) // _STOPS)
    inner = np.unique(np.quantile(prompts, np.arange(1, steps) / steps).round())
    return np.concatenate([[0.0], inner[inner > 0]])
