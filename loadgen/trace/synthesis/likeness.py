"""What goes together in a session: correlations of normal scores (a Gaussian copula), so that every table keeps its values.

A normal score is the quantile of the standard normal at a value's rank; correlations between scores survive any
stretching of the values, which heavy tails need. All is estimated by moments: averages of products.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from loadgen.trace.features import Conversation
from loadgen.trace.synthesis.appends import STEADY, Cell, Loading, extends
from loadgen.trace.synthesis.correlations import Sessions, correlations
from loadgen.trace.synthesis.habits import NORMAL
from loadgen.trace.synthesis.loops import Loops
from loadgen.trace.synthesis.profile import HABITS, Alike

Floats = npt.NDArray[np.float64]
_LAGS = 10  # steps after which a run of like appends has ended; what is alike beyond is the session's
_PAIRS = 500  # fewer cannot tell one lag from another
_SESSIONS = 30  # fewer cannot tell a correlation
_STEPS = 5  # steady tool steps of a session that tell its growth
_ROUNDS = 10
_MOST = 0.95  # of a score's variance is explained at most


@dataclass(frozen=True, slots=True)
class Likeness:
    """`alike` and `habits` as the profile has them; `loadings`: of each append table."""

    alike: Alike
    habits: list[list[float]]
    loadings: list[Loading]


@dataclass(frozen=True, slots=True)
class _Scored:
    """A session's tool steps: turn, normal score of the append among those of its cell, NaN where it appends none; cell."""

    turns: Floats
    scores: Floats
    cells: npt.NDArray[np.int64]


def normal_scores(values: Sequence[float]) -> Floats:
    """Of each value, by its mean rank among the others."""
    numbers = np.asarray(values, dtype=np.float64)
    distinct, inverse, counts = np.unique(numbers, return_inverse=True, return_counts=True)
    if len(distinct) < 2:
        return np.zeros(len(numbers))
    ranks = np.cumsum(counts) - counts / 2
    return np.array([NORMAL.inv_cdf(rank / len(numbers)) for rank in ranks])[inverse]


def fit_likeness(
    found: Sequence[Conversation], cells: Sequence[Cell], residuals: Floats, loops: Loops
) -> Likeness:
    """`cells`: of the append tables.

    `residuals`: of the lengths, so that sessions which a large prompt ended do not count as short; `loops`: how often
    they go back to the human. Without enough sessions or steps nothing is alike.
    """
    scored = _scored(found, cells)
    late = [s.scores[s.turns >= STEADY] for s in scored]
    told = np.array([np.count_nonzero(~np.isnan(row)) >= _STEPS for row in late])
    products = [_lag(late, lag) for lag in range(1, 2 * _LAGS + 1)]
    size = len(HABITS)
    if told.sum() < _SESSIONS or any(len(p) < _PAIRS for p in products):
        identity = [[float(i == j) for j in range(size)] for i in range(size)]
        return Likeness(Alike(decay=0.0, answer=0.0), identity, [Loading()] * len(cells))
    session, run, decay = _parts(products)
    answer = min(_answers(found, scored), math.sqrt(max(0.0, _MOST - session - run)))
    sessions = Sessions(
        requests=normal_scores(list(residuals)),
        first=normal_scores([c.steps[0].prompt for c in found]),
        loops=loops.scores,
        steps=np.array([max(len(c.steps) - 1, 1) for c in found], dtype=np.float64),
        told=told,
        loops_with_requests=loops.with_length,
    )
    if session > 0:
        noise = 1 - session + 2 * run * decay / (1 - decay)
        rows, levels = _levels(scored, sessions, session, noise, len(cells))
    else:
        rows, levels = correlations(sessions, None), np.zeros(len(cells))
    steady = Loading(math.sqrt(session), math.sqrt(run))
    most = _MOST - answer**2
    return Likeness(
        Alike(decay=round(decay, 4), answer=round(answer, 4)),
        rows,
        [
            _loading(steady, level, most) if cell.turn >= STEADY else Loading()
            for cell, level in zip(cells, levels, strict=True)
        ],
    )


def _levels(
    scored: Sequence[_Scored],
    sessions: Sessions,
    session: float,
    noise: float,
    cells: int,
) -> tuple[list[list[float]], Floats]:
    """(correlations of HABITS, mean habit of each cell's steps), solved for in turn.

    Scores are relative to their cell, where fast sessions may be among themselves: those at large prompts are. A session's
    habit is the mean of its late scores and their cells' levels, drawn towards what its length lets expect by `noise`, the
    variance of a late score about its session's mean as far as it stays in means.
    """
    loading, told = math.sqrt(session), sessions.told
    levels = np.zeros(cells)
    rows: list[list[float]] = []
    late = [(s.turns >= STEADY) & ~np.isnan(s.scores) for s in scored]
    trust = session / (session + noise / np.array([max(row.sum(), 1) for row in late]))
    where = [s.cells[s.cells >= 0] for s in scored]
    held = np.maximum(np.bincount(np.concatenate(where), minlength=cells), 1)
    for _ in range(_ROUNDS):
        growth = np.array(
            [
                float((s.scores[row] / loading + levels[s.cells[row]]).mean())
                for s, row, ok in zip(scored, late, told, strict=True)
                if ok
            ]
        )
        rows = correlations(sessions, growth, trust[told])
        expected = rows[0][-1] * sessions.requests
        # over all sessions the habit's mean is 0; those told are longer than most
        shift = float(np.average(expected[told] - growth, weights=trust[told]))
        habit = expected.copy()
        habit[told] += trust[told] * (growth + shift - expected[told])
        levels = (
            sum(np.bincount(row, minlength=cells) * h for row, h in zip(where, habit, strict=True)) / held
        )
    return rows, levels


def _loading(loading: Loading, level: float, most: float) -> Loading:
    """Drawn towards 0 where the squares sum to more."""
    total = loading.growth**2 + loading.run**2
    shrink = math.sqrt(min(1.0, most / total)) if total > 0 else 1.0
    return Loading(round(loading.growth * shrink, 4), round(loading.run * shrink, 4), round(float(level), 4))


def _scored(found: Sequence[Conversation], cells: Sequence[Cell]) -> list[_Scored]:
    steps = [[s for s in c.steps[1:] if s.gap_kind != "human"] for c in found]
    scores = [np.full(len(row), math.nan) for row in steps]
    places = [np.full(len(row), -1) for row in steps]
    groups: dict[int, list[tuple[int, int, float]]] = {}
    for i, row in enumerate(steps):
        for j, s in enumerate(row):
            cell = next((n for n, c in enumerate(cells) if c.holds(s)), -1)
            if extends(s) and cell >= 0:
                places[i][j] = cell
                groups.setdefault(cell, []).append((i, j, float(max(0, s.prompt - s.before))))
    for group in groups.values():
        for (i, j, _), score in zip(group, normal_scores([tokens for *_, tokens in group]), strict=True):
            scores[i][j] = score
    return [
        _Scored(np.array([s.index for s in row], dtype=np.float64), held, place)
        for row, held, place in zip(steps, scores, places, strict=True)
    ]


def _lag(rows: Sequence[Floats], lag: int) -> Floats:
    """Products of the scores that are so many tool steps apart."""
    together = np.concatenate([row[:-lag] * row[lag:] for row in rows if len(row) > lag] or [np.empty(0)])
    return np.asarray(together[~np.isnan(together)])


def _parts(products: Sequence[Floats]) -> tuple[float, float, float]:
    """(session, run, decay) that fit the autocovariance session + run · decay^lag best, lags weighed by their pairs."""
    curve = np.array([p.mean() for p in products])
    weights = np.array([len(p) for p in products], dtype=np.float64)
    root = np.sqrt(weights)
    best = (math.inf, 0.0, 0.0, 0.0)
    for decay in (0.01 * hundredth for hundredth in range(96)):
        shape = np.stack([np.ones(len(curve)), decay ** np.arange(1, len(curve) + 1)], axis=1)
        solved = np.linalg.lstsq(shape * root[:, None], curve * root, rcond=None)[0]
        solved = np.clip(solved, 0.0, None)
        missed = float((weights * (curve - shape @ solved) ** 2).sum())
        if missed < best[0]:
            best = (missed, float(solved[0]), float(solved[1]), decay)
    _, session, run, decay = best
    shrink = min(1.0, _MOST / max(session + run, 1e-9))
    return session * shrink, run * shrink, decay


def _answers(found: Sequence[Conversation], scored: Sequence[_Scored]) -> float:
    """Correlation of a tool append's score with that of the answer before it, which the append holds."""
    answers: list[float] = []
    appends: list[float] = []
    for c, s in zip(found, scored, strict=True):
        before = [a.output for a, b in pairwise(c.steps) if b.gap_kind != "human"]
        for output, score in zip(before, s.scores, strict=True):
            if output is not None and not math.isnan(score):
                answers.append(output)
                appends.append(float(score))
    return max(0.0, float(np.mean(normal_scores(answers) * np.array(appends)))) if answers else 0.0
