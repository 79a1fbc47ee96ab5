"""The order of runs: complete, balanced, repeatable."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from plans import experiment

from loadgen.experiment.order import Step, order


@given(st.integers(2, 4), st.integers(1, 5), st.integers(1, 3), st.integers(0, 99))
def test_every_arm_runs_equally_often_and_goes_before_every_other_equally_often(
    arms: int, pairs: int, cells: int, seed: int
) -> None:
    plan = order(experiment(arms, 2 * pairs, cells, seed))
    assert [step.index for step in plan] == list(range(len(plan)))
    assert len({step.folder for step in plan}) == len(plan) == arms * 2 * pairs * cells
    for cell in {step.cell for step in plan}:
        mine = [step for step in plan if step.cell == cell]
        assert Counter(step.arm for step in mine) == {f"a{n}": 2 * pairs for n in range(arms)}
        places: dict[tuple[str, int], int] = {(step.arm, step.rep): step.position for step in mine}
        for a in range(arms):
            for b in range(a):
                before = sum(places[f"a{a}", rep] < places[f"a{b}", rep] for rep in range(2 * pairs))
                assert before == pairs


def test_blocks_stay_together_and_cells_take_turns() -> None:
    plan = order(experiment(arms=2, runs=4, cells=3))
    blocks = [plan[n : n + 2] for n in range(0, len(plan), 2)]
    assert all(a.cell == b.cell and a.rep == b.rep and (a.position, b.position) == (0, 1) for a, b in blocks)
    assert [{a.cell for a, _ in blocks[n : n + 3]} for n in range(0, 12, 3)] == [{"c0", "c1", "c2"}] * 4


def test_the_same_file_gives_the_same_plan_and_another_seed_another() -> None:
    assert order(experiment()) == order(experiment())
    assert order(experiment(seed=1, runs=20)) != order(experiment(seed=2, runs=20))


def test_folders_are_arm_and_repetition_inside_the_cell() -> None:
    assert Step(index=0, cell="", arm="off", rep=3, position=0).folder == "off.r03"
    assert Step(index=0, cell="width=2", arm="off", rep=3, position=0).folder == "width=2/off.r03"
