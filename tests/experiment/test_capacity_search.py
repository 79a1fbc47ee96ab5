"""The search, against endpoints whose capacity is known."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadgen.experiment.capacity import Search, Step, answer


def found(search: Search, passes: object) -> list[Step]:
    steps: list[Step] = []
    while (load := search.next(steps)) is not None:
        outcome = "pass" if passes(load) else "fail"  # type: ignore[operator]
        steps.append(Step(load=load, outcome=outcome, run=""))
        assert len(steps) < 40
    return steps


@given(capacity=st.integers(0, 300), high=st.integers(1, 256))
def test_sessions_are_found_exactly(capacity: int, high: int) -> None:
    steps = found(Search(high=high), lambda load: load <= capacity)
    result = answer(Search(high=high), steps)
    assert result.complete
    assert result.best == (min(capacity, high) or None)
    assert result.edge == (capacity + 1 if capacity < high else None)
    assert len({step.load for step in steps}) == len(steps)


@given(capacity=st.floats(0.3, 200), low=st.floats(0.5, 4))
def test_rates_are_found_within_the_wanted_distance(capacity: float, low: float) -> None:
    search = Search(low=low, high=64, close=0.1, rate=True)
    result = answer(search, found(search, lambda load: load <= capacity))
    if capacity >= 64:
        assert (result.best, result.edge) == (64, None)
    elif result.best is not None and result.edge is not None:
        assert result.best <= capacity < result.edge <= result.best * 1.1 + 1e-9


def test_a_step_that_cannot_be_judged_ends_the_search() -> None:
    search = Search()
    steps = [Step(load=1, outcome="pass", run=""), Step(load=2, outcome="inconclusive", run="")]
    assert search.next(steps) is None
    assert (answer(search, steps).best, answer(search, steps).complete) == (1, False)
