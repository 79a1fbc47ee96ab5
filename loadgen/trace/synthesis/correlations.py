"""Which habits go together over sessions: correlations of their normal scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from loadgen.trace.synthesis.profile import HABITS, cholesky

Floats = npt.NDArray[np.float64]
_CERTAIN = 0.9  # no correlation is taken to be nearer to certainty


@dataclass(frozen=True, slots=True)
class Sessions:
    """What is known of each session's habits, as normal scores: `requests` and `first` exactly, `loops` as expected from
    few steps. `steps`: after the first turn; `told`: sessions whose growth is known; `loops_with_requests`: see `Loops`.
    """

    requests: Floats
    first: Floats
    loops: Floats
    steps: Floats
    told: npt.NDArray[np.bool_]
    loops_with_requests: float


def correlations(sessions: Sessions, growth: Floats | None, trust: Floats | None = None) -> list[list[float]]:
    """Of HABITS. `growth`: of the sessions that are told, with noise; null where no session has one of its own. `trust`:
    the share of its variance that is not noise.

    Growth is regressed on the others, which noise in it leaves alone, as it does that only sessions of some length tell it.
    Rates of human turns are regressed with sessions weighed by their steps, for short ones tell little.
    """
    size = len(HABITS)
    rows = [[float(i == j) for j in range(size)] for i in range(size)]
    even, told = np.ones(len(sessions.steps)), sessions.told
    rows[0][1] = _slope(sessions.requests, sessions.first, even)
    rows[0][2] = sessions.loops_with_requests
    rows[1][2] = _slope(sessions.first, sessions.loops, sessions.steps)
    if growth is not None:
        weights = even[told] if trust is None else trust
        rows[0][3] = _slope(sessions.requests[told], growth, weights)
        rows[1][3] = _slope(sessions.first[told], growth, weights)
        rows[2][3] = _slope(sessions.loops[told], growth, weights)
    for i in range(size):
        for j in range(i):
            rows[i][j] = rows[j][i]
    return _definite(rows)


def _slope(on: Floats, of: Floats, weights: Floats) -> float:
    """Of a weighted regression; 0 where nothing varies."""
    x = on - np.average(on, weights=weights)
    y = of - np.average(of, weights=weights)
    spread = float(np.average(x * x, weights=weights))
    slope = float(np.average(x * y, weights=weights)) / spread if spread > 1e-12 else 0.0
    return max(-_CERTAIN, min(_CERTAIN, slope))


def _definite(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Drawn towards no correlation until it is a correlation matrix; estimates of separate pairs may not be one."""
    keep = 1.0
    while True:
        shrunk = [
            [1.0 if i == j else round(keep * r, 4) for j, r in enumerate(row)] for i, row in enumerate(rows)
        ]
        if cholesky(shrunk) is not None:
            return shrunk
        keep *= 0.9
