"""The tests behind a verdict (design, section 8). The run is the unit: values here are one figure a run, never one a turn.

All comparisons are on logarithms, so that an effect is a ratio: d = mean(log candidate) - mean(log baseline).
Sources: Welch (1947) for unequal variances; Schuirmann (1987) for two one-sided tests; Holm (1979); Korn and Graubard
(1998) for the bounds of a share from clustered turns. The rules are calibrated by `benchmarks/statistics_*.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt
import scipy  # loads its parts on first use: `stats` alone takes a second, and most commands need none of it

ALPHA = 0.01  # one-sided, of the primary endpoint against "no change"
LEVEL = 0.95  # of intervals, and of the bound that must clear the tolerance
POWER = 0.90
MIN_RUNS = 5  # a side
MIN_DF = 8  # of a stored variance that may stand in for runs
BOOTSTRAP_FROM = 10  # runs a side
EQUALITY_MARGIN = 0.05

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Noise:
    """Run-to-run standard deviation of log values, pooled over groups of equal runs. `upper` is its 95 % upper bound."""

    sd: float
    df: int

    @property
    def upper(self) -> float:
        return (
            self.sd * math.sqrt(self.df / scipy.stats.chi2.ppf(1 - LEVEL, self.df)) if self.df else math.inf
        )


def noise_floor(groups: Sequence[Sequence[float]]) -> Noise | None:
    """Pooled SD of the logs within groups (one group: runs of one arm under one build). None without two runs in any group."""
    logs = [np.log(np.asarray(group, dtype=np.float64)) for group in groups if len(group) >= 2]
    df = sum(len(group) - 1 for group in logs)
    if not df:
        return None
    return Noise(math.sqrt(sum(float(((group - group.mean()) ** 2).sum()) for group in logs) / df), df)


@dataclass(frozen=True)
class Difference:
    """Candidate against baseline. `ratio` > 1: the candidate's figure is larger. `low`, `high`: 95 % interval of the ratio.

    `at_least` and `at_most` are its one-sided 95 % bounds, `p_larger` and `p_smaller` one-sided against no change; all
    of them None where nothing can be tested. `se` and `df` are of the log ratio; `method` says which test it was.
    """

    ratio: float
    runs: tuple[int, int]
    method: Literal["welch", "stored variance", "none"]
    low: float | None = None
    high: float | None = None
    at_least: float | None = None
    at_most: float | None = None
    p_larger: float | None = None
    p_smaller: float | None = None
    se: float | None = None
    df: float | None = None

    @property
    def p(self) -> float | None:
        """Two-sided."""
        if self.p_larger is None or self.p_smaller is None:
            return None
        return min(1.0, 2 * min(self.p_larger, self.p_smaller))


def difference(
    baseline: Sequence[float], candidate: Sequence[float], stored: Noise | None = None
) -> Difference:
    """Compare run-level values (each > 0, at least one a side).

    Welch's t when both sides have MIN_RUNS; with fewer, Student's t with a stored variance of at least MIN_DF degrees of
    freedom; else, with two runs a side, Welch's interval for the eye, which a verdict must not use (`decidable`).
    """
    a, b = (np.log(np.asarray(side, dtype=np.float64)) for side in (baseline, candidate))
    d = float(b.mean() - a.mean())
    runs = (a.size, b.size)
    enough = min(runs) >= MIN_RUNS
    if not enough and stored is not None and stored.df >= MIN_DF:
        return _student(d, stored.sd * math.sqrt(1 / a.size + 1 / b.size), stored.df, runs, "stored variance")
    if min(runs) < 2:
        return Difference(math.exp(d), runs, "none")
    va, vb = float(a.var(ddof=1)) / a.size, float(b.var(ddof=1)) / b.size
    se = math.sqrt(va + vb)
    # two sides without any spread (a simulation): the difference is exact
    df = (va + vb) ** 2 / (va**2 / (a.size - 1) + vb**2 / (b.size - 1)) if se else float(sum(runs) - 2)
    return _student(d, se, df, runs, "welch")


def _student(
    d: float, se: float, df: float, runs: tuple[int, int], method: Literal["welch", "stored variance"]
) -> Difference:
    t = d / se if se else math.copysign(math.inf, d) if d else 0.0
    half = float(scipy.stats.t.ppf((1 + LEVEL) / 2, df)) * se
    one_sided = float(scipy.stats.t.ppf(LEVEL, df)) * se
    return Difference(
        ratio=math.exp(d),
        low=math.exp(d - half),
        high=math.exp(d + half),
        at_least=math.exp(d - one_sided),
        at_most=math.exp(d + one_sided),
        p_larger=float(scipy.stats.t.sf(t, df)),
        p_smaller=float(scipy.stats.t.cdf(t, df)),
        se=se,
        df=df,
        runs=runs,
        method=method,
    )


def decidable(found: Difference) -> bool:
    """Whether a verdict may rest on it: MIN_RUNS a side, or a stored variance."""
    return found.method == "stored variance" or (found.method == "welch" and min(found.runs) >= MIN_RUNS)


def is_larger(found: Difference, tolerance: float) -> bool:
    """Whether the candidate's figure is shown to be larger than the baseline's by more than the tolerance.

    Both must hold: p < ALPHA against no change, and the one-sided lower 95 % bound of the ratio is above 1 + tolerance.
    """
    if found.p_larger is None or found.at_least is None:
        return False
    return found.p_larger < ALPHA and found.at_least > 1 + tolerance


def is_smaller(found: Difference, tolerance: float) -> bool:
    """The mirror image of `is_larger`: the baseline's figure is larger than the candidate's by more than the tolerance."""
    if found.p_smaller is None or found.at_most is None:
        return False
    return found.p_smaller < ALPHA and 1 / found.at_most > 1 + tolerance


def smallest_effect(se: float, df: float, tolerance: float) -> float:
    """The ratio - 1 that `is_larger` finds with a probability of POWER, given the standard error of the log ratio."""
    against_none = _detectable(float(scipy.stats.t.ppf(1 - ALPHA, df)), df) * se
    beyond = math.log1p(tolerance) + _detectable(float(scipy.stats.t.ppf(LEVEL, df)), df) * se
    return math.expm1(max(against_none, beyond))


def _detectable(critical: float, df: float) -> float:
    """Non-centrality at which t exceeds `critical` with a probability of POWER."""
    return float(
        scipy.optimize.brentq(
            lambda nc: scipy.stats.nct.sf(critical, df, nc) - POWER, 0.0, 20.0 + 10 * critical
        )
    )


def runs_needed(sd: float, effect: float, tolerance: float, most: int = 100) -> int | None:
    """Runs a side that find a ratio of 1 + effect with a probability of POWER; None when `most` are not enough."""
    for n in range(MIN_RUNS, most + 1):
        if smallest_effect(sd * math.sqrt(2 / n), 2 * n - 2, tolerance) <= effect:
            return n
    return None


def bootstrap_interval(
    baseline: Sequence[float], candidate: Sequence[float], seed: int = 0
) -> tuple[float, float]:
    """95 % BCa interval of the ratio of geometric means, resampling runs; meant for BOOTSTRAP_FROM runs a side or more."""
    a, b = (np.log(np.asarray(side, dtype=np.float64)) for side in (baseline, candidate))
    if np.ptp(a) == 0 and np.ptp(b) == 0:
        exact = math.exp(float(b.mean() - a.mean()))
        return exact, exact

    def statistic(x: Floats, y: Floats, axis: int = -1) -> Floats:
        return np.asarray(y.mean(axis=axis) - x.mean(axis=axis))

    found = scipy.stats.bootstrap(
        (a, b),
        statistic,
        n_resamples=4999,
        confidence_level=LEVEL,
        method="BCa",
        rng=np.random.default_rng(seed),
    )
    return math.exp(found.confidence_interval.low), math.exp(found.confidence_interval.high)


def equal_within(found: Difference, margin: float = EQUALITY_MARGIN) -> bool | None:
    """Two one-sided tests at 0.05: True when the ratio is shown to lie within 1/(1 + margin) … 1 + margin; None if untestable."""
    if found.se is None or found.df is None:
        return None
    half = float(scipy.stats.t.ppf(LEVEL, found.df)) * found.se
    return abs(math.log(found.ratio)) + half < math.log1p(margin)


def holm(p: Sequence[float]) -> list[float]:
    """Adjusted p values (Holm's step-down)."""
    order = sorted(range(len(p)), key=p.__getitem__)
    adjusted = [0.0] * len(p)
    running = 0.0
    for position, which in enumerate(order):
        running = max(running, min(1.0, (len(p) - position) * p[which]))
        adjusted[which] = running
    return adjusted


@dataclass(frozen=True)
class Share:
    """Share of turns over a limit. `low` and `high` are one-sided 95 % bounds; `effective` is the n that `high` rests on."""

    over: int
    turns: int
    clusters: int
    effective: float
    low: float
    high: float


CLEAR = 4.0  # standard deviations of log time between the mean and the limit, beyond which times do not come near it


def exceedance(
    over: npt.NDArray[np.bool_],
    cluster: npt.NDArray[np.integer],
    log_time: Floats | None = None,
    log_limit: float = 0.0,
) -> Share:
    """Bounds of the share of turns over a limit, adjusted for turns of one session being alike. All arrays are [N].

    Korn and Graubard: the exact binomial bounds with n* = n / deff x (t(n - 1) / t(clusters - 1))^2 turns, where
    deff = 1 + (m - 1) ICC and m is the (weighted) number of turns a session. The lower bound, which can fail a run, takes the ICC of
    being over the limit. The upper one, which can pass it, takes that of the log times where it is larger: few turns over
    a limit show little of their clustering. Where the limit lies CLEAR of the times these say nothing about it.
    """
    n, k = int(over.size), int(np.count_nonzero(over))
    if not n:
        return Share(0, 0, 0, 0.0, 0.0, 1.0)
    _, codes = np.unique(cluster, return_inverse=True)
    icc = icc_of_times = intraclass(over.astype(np.float64), codes)
    if log_time is not None:
        spread = float(log_time.std())
        if spread and abs(log_limit - float(log_time.mean())) < CLEAR * spread:
            icc_of_times = max(icc, intraclass(log_time, codes))
    for_low, for_high = _effective(codes, icc), _effective(codes, icc_of_times)
    low = float(scipy.stats.beta.ppf(1 - LEVEL, k / n * for_low, for_low - k / n * for_low + 1)) if k else 0.0
    high = (
        float(scipy.stats.beta.ppf(LEVEL, k / n * for_high + 1, for_high - k / n * for_high))
        if k < n
        else 1.0
    )
    return Share(k, n, int(codes.max()) + 1, for_high, low, high)


def _effective(codes: npt.NDArray[np.integer], icc: float) -> float:
    """Independent turns that n turns in clusters are worth."""
    sizes = np.bincount(codes).astype(np.float64)
    n = codes.size
    if sizes.size < 2:
        return 1.0  # one session says nothing about others
    worth = n / (1 + (float((sizes**2).sum()) / n - 1) * icc)
    quantiles = scipy.stats.t.ppf(LEVEL, [n - 1, sizes.size - 1])
    return min(float(worth * (quantiles[0] / quantiles[1]) ** 2), float(n))


def intraclass(values: Floats, codes: npt.NDArray[np.integer]) -> float:
    """Intraclass correlation by one-way analysis of variance, not below 0."""
    sizes = np.bincount(codes).astype(np.float64)
    groups, n = sizes.size, values.size
    if groups < 2 or n <= groups:
        return 0.0
    means = np.bincount(codes, weights=values) / sizes
    between = float((sizes * (means - values.mean()) ** 2).sum()) / (groups - 1)
    within = float(((values - means[codes]) ** 2).sum()) / (n - groups)
    size = (n - float((sizes**2).sum()) / n) / (groups - 1)
    whole = between + (size - 1) * within
    return max(0.0, (between - within) / whole) if whole else 0.0
