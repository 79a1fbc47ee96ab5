from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from loadgen.report.statistics import (
    Noise,
    bootstrap_interval,
    decidable,
    difference,
    equal_within,
    exceedance,
    holm,
    intraclass,
    is_larger,
    is_smaller,
    noise_floor,
    runs_needed,
    smallest_effect,
)

A = [22.0, 22.6, 21.5, 22.1, 21.9]


def scaled(by: float) -> list[float]:
    return [value * by for value in A]


def test_welch_agrees_with_scipy() -> None:
    b = [23.0, 25.0, 24.2, 22.9, 26.0, 24.4]
    found = difference(A, b)
    reference = stats.ttest_ind(np.log(b), np.log(A), equal_var=False, alternative="greater")
    assert found.p_larger == pytest.approx(reference.pvalue)
    interval = stats.ttest_ind(np.log(b), np.log(A), equal_var=False).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((math.exp(interval.low), math.exp(interval.high)))
    assert found.p_smaller == pytest.approx(1 - reference.pvalue)


@pytest.mark.parametrize(("by", "larger"), [(1.0, False), (1.05, False), (1.2, True), (0.8, False)])
def test_only_a_change_beyond_the_tolerance_is_larger(by: float, larger: bool) -> None:
    assert is_larger(difference(A, scaled(by)), 0.05) is larger


def test_smaller_is_the_mirror_of_larger() -> None:
    for by in (0.7, 0.9, 1.0, 1.1, 1.4):
        there, back = difference(A, scaled(by)), difference(scaled(by), A)
        for tolerance in (0.0, 0.05):
            assert is_larger(there, tolerance) == is_smaller(back, tolerance)


def test_few_runs_decide_nothing_unless_the_noise_is_known() -> None:
    assert not decidable(difference(A[:4], scaled(1.5)[:4]))
    assert decidable(difference(A, scaled(1.5)))
    weak, known = Noise(0.02, 7), Noise(0.02, 8)
    assert not decidable(difference(A[:1], scaled(1.5)[:1], weak))
    alone = difference(A[:1], scaled(1.5)[:1], known)
    assert decidable(alone)
    assert alone.se == pytest.approx(0.02 * math.sqrt(2))
    assert is_larger(alone, 0.05)
    assert not is_larger(difference(A[:1], scaled(1.08)[:1], known), 0.05)


def test_one_run_a_side_has_a_ratio_and_no_interval() -> None:
    found = difference([22.0], [6.6])
    assert found.ratio == pytest.approx(0.3)
    assert (found.low, found.p, found.se) == (None, None, None)
    assert not is_larger(found, 0.0)


def test_runs_without_any_spread_are_exact() -> None:
    same, slower = difference([2.0] * 5, [2.0] * 5), difference([2.0] * 5, [2.2] * 5)
    assert (same.ratio, same.low, same.high) == (1.0, 1.0, 1.0)
    assert not is_larger(same, 0.0)
    assert is_larger(slower, 0.05)
    assert not is_larger(slower, 0.15)


def test_noise_is_pooled_within_groups() -> None:
    found = noise_floor(
        [A, scaled(3.0), [5.0]]
    )  # the groups' means differ, their spread does not; one run tells nothing
    assert found is not None
    assert found.df == 8
    assert found.sd == pytest.approx(float(np.log(A).std(ddof=1)))
    assert found.upper > found.sd
    assert noise_floor([[1.0], [2.0]]) is None


def test_smallest_effect_is_found_nine_times_in_ten() -> None:
    generator = np.random.default_rng(7)
    sd, n, tolerance = 0.03, 5, 0.05
    effect = smallest_effect(sd * math.sqrt(2 / n), 2 * n - 2, tolerance)
    found = sum(
        is_larger(
            difference(
                np.exp(generator.normal(0, sd, n)).tolist(),
                np.exp(generator.normal(math.log1p(effect), sd, n)).tolist(),
            ),
            tolerance,
        )
        for _ in range(1000)
    )
    assert 860 <= found <= 940  # 0.90 within four standard errors


def test_runs_needed_grow_as_the_effect_shrinks() -> None:
    assert runs_needed(0.03, 0.15, 0.05) == 5
    ten = runs_needed(0.03, 0.10, 0.05)
    assert ten is not None
    assert 5 < ten <= 10
    assert runs_needed(0.03, 0.05, 0.05) is None  # within the tolerance, no number of runs finds it
    assert runs_needed(0.10, 0.15, 0.05) is not None


def test_bootstrap_covers_the_ratio() -> None:
    base = [*A, 22.2, 21.8, 22.4, 21.7, 22.0]
    low, high = bootstrap_interval(base, [value * 1.1 for value in base])
    assert low < 1.1 < high
    assert bootstrap_interval(base, base) == bootstrap_interval(base, base)  # the seed is fixed


def test_equality_needs_evidence() -> None:
    assert equal_within(difference([1.0, 1.001, 0.999], [1.0, 1.002, 0.999])) is True
    assert equal_within(difference([1.0, 1.2, 0.8], [1.0, 1.2, 0.8])) is False  # equal means, and no proof
    assert equal_within(difference([1.0], [1.0])) is None


@given(st.lists(st.floats(0, 1), max_size=8))
def test_holm_is_monotone_and_at_least_p(p: list[float]) -> None:
    adjusted = holm(p)
    assert all(one >= raw for one, raw in zip(adjusted, p, strict=True))
    order = sorted(range(len(p)), key=p.__getitem__)
    assert [adjusted[i] for i in order] == sorted(adjusted)


def test_holm_known_values() -> None:
    assert holm([0.01, 0.04, 0.03]) == pytest.approx([0.03, 0.06, 0.06])


NONE = np.zeros(0)


@pytest.mark.parametrize(("turns", "share"), [(29, 0.10), (59, 0.05), (299, 0.01)])
def test_independent_turns_that_a_percentile_needs(turns: int, share: float) -> None:
    none_over = np.zeros(turns, dtype=bool)
    assert exceedance(none_over, np.arange(turns)).high <= share
    assert exceedance(none_over[1:], np.arange(turns - 1)).high > share


def test_three_of_forty_over_a_p99_limit_show_a_failure() -> None:
    over = np.zeros(40, dtype=bool)
    over[[1, 15, 33]] = True
    assert exceedance(over, np.arange(40)).low > 0.01
    assert exceedance(over, np.arange(40) % 10).low > 0.01  # in three sessions of ten


def test_turns_of_one_session_count_less() -> None:
    over = np.zeros(40, dtype=bool)
    over[:4] = True  # all four turns of one session
    together, apart = exceedance(over, np.arange(40) // 4), exceedance(over, np.arange(40))
    assert together.effective < 12
    assert together.low < apart.low
    assert together.high > apart.high


def test_times_near_the_limit_that_cluster_count_less_even_when_none_is_over() -> None:
    session = np.repeat(np.arange(30), 10)
    log_time = np.repeat(np.log(np.linspace(5, 7.9, 30)), 10)
    none_over = np.zeros(300, dtype=bool)
    near = exceedance(none_over, session, log_time, math.log(8))
    assert near.effective < 31
    assert near.high > 0.01
    far = exceedance(none_over, session, log_time, math.log(800))
    assert far.effective > 200


def test_nothing_and_one_session_prove_nothing() -> None:
    assert exceedance(np.zeros(0, dtype=bool), np.zeros(0, dtype=int)).high == 1.0
    assert exceedance(np.zeros(500, dtype=bool), np.zeros(500, dtype=int)).high > 0.9


def test_bounds_hold_for_clustered_turns() -> None:
    """Upper bounds of a true share of 5 % in 20 sessions of 10 that share a random effect cover it in about 95 of 100."""
    generator = np.random.default_rng(3)
    session = np.repeat(np.arange(20), 10)
    limit = stats.norm.ppf(0.95)
    covered = 0
    for _ in range(400):
        latent = math.sqrt(0.4) * generator.normal(size=20)[session] + math.sqrt(0.6) * generator.normal(
            size=200
        )
        covered += exceedance(latent > limit, session, latent, limit).high >= 0.05
    assert covered >= 0.9 * 400


def test_intraclass_of_equal_and_of_unrelated_turns() -> None:
    codes = np.repeat(np.arange(10), 5)
    assert intraclass(codes.astype(float), codes) == pytest.approx(1.0)
    assert intraclass(np.tile([1.0, 2.0, 3.0, 4.0, 5.0], 10), codes) == 0.0
    assert intraclass(np.ones(50), codes) == 0.0
