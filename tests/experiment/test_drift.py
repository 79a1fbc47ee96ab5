"""Covariates of experiments whose truth is known."""

from __future__ import annotations

import math
import random

import pytest
from plans import experiment

from loadgen.experiment.drift import Placed, covariates
from loadgen.experiment.order import order


def drawn(
    *, last: float = 1.0, other: float = 1.0, sd: float = 0.01, seed: int = 3, arms: int = 2, runs: int = 12
) -> dict[tuple[str, str], list[Placed]]:
    """Runs in the order of a real plan, arms and cells of very different speed, with known effects of both covariates."""
    dice = random.Random(seed)
    found: dict[tuple[str, str], list[Placed]] = {}
    previous = None
    for step in order(experiment(arms=arms, runs=runs, cells=2, seed=seed)):
        figure = (10.0 if step.arm == "a0" else 2.0) * (3 if step.cell == "c1" else 1)
        figure *= last ** (step.position / (arms - 1)) * math.exp(dice.gauss(0, sd))
        if previous not in (None, step.arm):
            figure *= other
        found.setdefault((step.cell, step.arm), []).append(Placed(step.position, previous, figure))
        previous = step.arm
    return found


@pytest.mark.parametrize("arms", [2, 3])
@pytest.mark.parametrize(("last", "other"), [(1.0, 1.0), (1.1, 1.0), (1.0, 1.1), (1.1, 0.9)])
def test_each_covariate_is_told_from_the_other(last: float, other: float, arms: int) -> None:
    position, previous = covariates(drawn(last=last, other=other, arms=arms))
    for found, truth in ((position, last), (previous, other)):
        assert found.ratio == pytest.approx(truth, abs=0.02)
        assert found.low < found.ratio < found.high
        assert found.seen is (truth != 1.0)
        assert found.sentence.startswith(
            ("an order effect", "a carry-over effect") if truth != 1.0 else "no "
        )


def test_nothing_is_invented_more_often_than_the_level_allows() -> None:
    """400 experiments without effects: about 5 % of the intervals leave out 1."""
    found = [one.seen for seed in range(400) for one in covariates(drawn(seed=seed, sd=0.03, runs=4))]
    assert len(found) > 780  # in a few orders the two cannot be told apart
    assert 0.02 < sum(found) / len(found) < 0.08


def test_a_covariate_that_only_moves_with_the_other_is_left_out() -> None:
    runs = [Placed(0, "a", 1.0), Placed(1, "b", 1.2), Placed(0, "a", 1.01), Placed(1, "b", 1.21)]
    (only,) = covariates({("c", "a"): runs})
    assert (only.name, only.seen, only.runs) == ("position", True, 4)


@pytest.mark.parametrize(
    "runs",
    [
        {},
        {("c", "a"): [Placed(0, None, 1.0), Placed(1, "b", 1.2)]},  # one of them followed nothing
        {("c", "a"): [Placed(0, "b", 1.0), Placed(1, "b", 1.2)]},  # nothing is left to judge by
        {("c", "a"): [Placed(0, "b", 1.0)] * 4},  # nothing varies
    ],
)
def test_too_little_says_nothing(runs: dict[tuple[str, str], list[Placed]]) -> None:
    assert covariates(runs) == []


def test_runs_without_any_noise() -> None:
    position, previous = covariates(drawn(last=1.1, sd=0.0))
    assert (round(position.ratio, 6), position.seen) == (1.1, True)
    assert (round(previous.ratio, 6), previous.seen) == (1.0, False)
