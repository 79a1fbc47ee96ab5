"""Verdicts on experiments whose truth is known."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import msgspec
import pytest
from plans import experiment
from rich.console import Console
from runs import write_folder

from loadgen.experiment import present
from loadgen.experiment.spec import Cell, Controls, Experiment
from loadgen.experiment.state import Result, State, begin
from loadgen.experiment.verdict import judge

SERVER = {"engine": "vllm", "capacity_tokens": 1000, "connector": "none"}


def played(
    tmp_path: Path,
    truth: dict[tuple[str, str], float],
    *,
    runs: int = 6,
    sd: float = 0.01,
    skip: int = 0,
    servers: dict[str, dict[str, Any]] | None = None,
    **controls: Any,
) -> tuple[Experiment, State, Path]:
    """An experiment of arms a0 and a1 whose runs are drawn around `truth[cell, arm]`, a mean TTFT of reuse turns."""
    plain = experiment(runs=runs)
    cells = [
        Cell(name=cell, values={}, kind="negative" if cell == "control" else "measure") for cell, _ in truth
    ]
    spec = msgspec.structs.replace(plain.spec, controls=Controls(**{"positive": None, **controls}))
    made = Experiment(
        spec=spec, sha256="", cells=list({c.name: c for c in cells}.values()), primary=cells[0].name
    )
    folder = tmp_path / "e"
    state = begin(made, folder)
    dice = random.Random(7)
    previous = None
    for step in state.plan[: len(state.plan) - skip]:
        mean = truth[step.cell, step.arm]
        write_folder(folder / step.folder, step.arm, step.rep, reuse_s=mean * (1 + dice.gauss(0, sd)))
        server = (servers or {}).get(step.arm, SERVER)
        state.results.append(
            Result(
                index=step.index,
                attempt=0,
                folder=step.folder,
                started="",
                code=0,
                previous_arm=previous,
                server=dict(server),
            )
        )
        previous = step.arm
    return made, state, folder


def outcome(tmp_path: Path, truth: dict[tuple[str, str], float], **how: Any) -> tuple[str, int]:
    verdict = judge(*played(tmp_path, truth, **how))
    primary = verdict.cells[0].comparisons[0]
    return primary.outcome, verdict.exit_code


def test_a_faster_arm_is_found(tmp_path: Path) -> None:
    assert outcome(tmp_path, {("c0", "a0"): 3.0, ("c0", "a1"): 1.0}) == ("faster", 0)


def test_a_slower_arm_is_a_regression(tmp_path: Path) -> None:
    assert outcome(tmp_path, {("c0", "a0"): 1.0, ("c0", "a1"): 1.2}) == ("slower", 1)


def test_no_difference_is_an_answer(tmp_path: Path) -> None:
    assert outcome(tmp_path, {("c0", "a0"): 1.0, ("c0", "a1"): 1.0}) == ("no difference shown", 0)


def test_two_runs_an_arm_prove_nothing(tmp_path: Path) -> None:
    assert outcome(tmp_path, {("c0", "a0"): 3.0, ("c0", "a1"): 1.0}, runs=2) == ("inconclusive", 4)


def test_other_cells_lend_their_noise(tmp_path: Path) -> None:
    """Two runs an arm in five cells: ten degrees of freedom, enough to decide by a pooled variance."""
    truth = {(f"c{n}", arm): mean for n in range(5) for arm, mean in (("a0", 3.0), ("a1", 1.0))}
    assert outcome(tmp_path, truth, runs=2) == ("faster", 0)


def test_missing_runs_leave_it_open(tmp_path: Path) -> None:
    made, state, folder = played(tmp_path, {("c0", "a0"): 3.0, ("c0", "a1"): 1.0}, runs=8, skip=2)
    verdict = judge(made, state, folder)
    assert (verdict.missing, verdict.exit_code) == (2, 4)
    assert "2 runs of the plan are missing" in verdict.sentence


def test_nothing_finished(tmp_path: Path) -> None:
    verdict = judge(*played(tmp_path, {("c0", "a0"): 1.0, ("c0", "a1"): 1.0}, skip=12))
    assert (verdict.cells, verdict.exit_code) == ([], 4)


@pytest.mark.parametrize(
    ("other", "word"),
    [
        ({**SERVER, "capacity_tokens": 900}, "capacity_tokens"),
        ({**SERVER, "connector": "some"}, None),
        ({**SERVER, "engine": "sglang"}, "engine"),
    ],
)
def test_servers_may_differ_only_in_what_the_file_names(
    tmp_path: Path, other: dict[str, Any], word: str | None
) -> None:
    verdict = judge(*played(tmp_path, {("c0", "a0"): 3.0, ("c0", "a1"): 1.0}, servers={"a1": other}))
    assert verdict.exit_code == (3 if word else 0)
    assert [word in str(one) for one in verdict.reasons if word] == ([True] if word else [])


def test_a_server_that_changes_in_mid_experiment_makes_it_invalid(tmp_path: Path) -> None:
    made, state, folder = played(tmp_path, {("c0", "a0"): 3.0, ("c0", "a1"): 1.0})
    state.results[-1].server["version"] = "2"
    assert judge(made, state, folder).exit_code == 3


CONTROL = {("c0", "a0"): 3.0, ("c0", "a1"): 1.0, ("control", "a0"): 1.0}


@pytest.mark.parametrize(
    ("control", "passed", "code"),
    [(1.0, "passed", 0), (1.3, "passed", 0), (0.5, "failed", 3), (0.93, "failed", 3)],
)
def test_the_negative_control(tmp_path: Path, control: float, passed: str, code: int) -> None:
    verdict = judge(*played(tmp_path, {**CONTROL, ("control", "a1"): control}))
    assert [c.passed for c in verdict.controls] == [passed]
    assert verdict.exit_code == code


@pytest.mark.parametrize(("sd", "passed"), [(0.01, "passed"), (0.2, "failed")])
def test_the_positive_control_is_found_when_the_noise_allows(tmp_path: Path, sd: float, passed: str) -> None:
    verdict = judge(*played(tmp_path, {("c0", "a0"): 9.0, ("c0", "a1"): 1.0}, runs=10, sd=sd, positive=0.15))
    assert [c.passed for c in verdict.controls] == [passed]
    assert verdict.exit_code == (0 if passed == "passed" else 3)


def test_what_is_shown(tmp_path: Path) -> None:
    made, state, folder = played(tmp_path, {**CONTROL, ("control", "a1"): 1.0}, positive=0.15)
    verdict = judge(made, state, folder)
    out = io.StringIO()
    present.print_verdict(made, verdict, Console(width=120, file=out))
    text = out.getvalue()
    for word in ("control", "a1", "faster", "3.0", "noise floor", "passed", "order effect", "carry-over"):
        assert word in text
    data = present.as_json(made, verdict)
    assert data["exit_code"] == 0
    assert [one["name"] for one in data["covariates"]] == ["position", "previous arm"]
    assert data["cells"][0]["arms"]["a1"]["reuse_ttft_s"] == pytest.approx(1.0, rel=0.05)
    assert data["cells"][0]["arms"]["a1"]["cached_share"] == pytest.approx(0.96)
    assert msgspec.json.encode(data)
