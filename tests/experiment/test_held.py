"""Sessions that an arm holds within a limit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from plans import experiment
from runs import write_folder

from loadgen.errors import InputError
from loadgen.experiment import present
from loadgen.experiment.held import Held, held, sentences
from loadgen.experiment.spec import Cell, Experiment, Within, load
from loadgen.experiment.state import Result, begin
from loadgen.experiment.verdict import judge
from loadgen.report.sides import Side, read_sides

FILE = """name = "e"
runs = 2
workload = { sessions = 3, turns = 2, schedule = "closed" }
sweep = { users = [4, 1, 2] }
[within]
ttft_s = 8.0
share = 0.9
gpus = 2
[[arms]]
name = "off"
host = "127.0.0.1:1"
[[arms]]
name = "on"
host = "127.0.0.1:2"
"""


def file(tmp_path: Path, text: str = FILE) -> Experiment:
    path = tmp_path / "e.toml"
    path.write_text(text)
    return load(path)


def sides(tmp_path: Path, made: Experiment, reuse_s: dict[str, dict[int, float]]) -> dict[str, list[Side]]:
    """One run of each arm and cell; a load that an arm lacks has no cell."""
    found = {}
    for cell in made.cells:
        users = cell.values["users"]
        if all(users in loads for loads in reuse_s.values()):
            grouped = []
            for arm, loads in reuse_s.items():
                folder = tmp_path / cell.name / f"{arm}.r00"
                write_folder(folder, arm, 0, reuse_s=loads[users])  # type: ignore[index]
                grouped.append((arm, [folder]))
            found[cell.name] = read_sides(grouped)
    return found


def test_each_arm_with_and_without_the_tier(tmp_path: Path) -> None:
    made = file(tmp_path)
    found = held(made, sides(tmp_path, made, {"off": {1: 5, 2: 9, 4: 22}, "on": {1: 2, 2: 3, 4: 6}}))
    assert found == [Held("off", "", 1, 2, None, 2), Held("on", "", 4, None, None, 2)]
    assert [one.per_gpu for one in found] == [0.5, 2.0]
    assert sentences(made, found) == [
        "live sessions with a first token within 8.00 s on 90 % of the reuse turns:",
        "  off: 1 (0.50 a GPU); 2 missed it",
        "  on: 4, the most that counts (2.00 a GPU)",
    ]


def test_none_and_what_cannot_be_used(tmp_path: Path) -> None:
    made = file(tmp_path)
    found = held(made, sides(tmp_path, made, {"off": {1: 9, 4: 1}, "on": {1: 1, 4: 1}}))
    assert found == [Held("off", "", None, 1, 2, 2), Held("on", "", 1, None, 2, 2)]  # 4 lies behind the gap
    assert sentences(made, found)[1:] == [
        "  off: not even 1",
        "  on: 1, the most that counts (0.50 a GPU); runs from 2 on are missing or invalid",
    ]
    assert sentences(made, held(made, {}))[1:] == [
        f"  {arm}: none; runs from 1 on are missing or invalid" for arm in ("off", "on")
    ]


def test_an_invalid_run_does_not_count(tmp_path: Path) -> None:
    made = file(tmp_path)
    read = sides(tmp_path, made, {"off": {1: 1, 2: 1, 4: 1}, "on": {1: 1, 2: 1, 4: 1}})
    folder = read["users=2"][0].folders[0]
    (folder / "client-w0.jsonl").unlink()
    read["users=2"] = read_sides([(side.label, side.folders) for side in read["users=2"]])
    assert [(one.sessions, one.unusable) for one in held(made, read)] == [(1, 2), (4, None)]


def test_the_other_options_of_a_sweep_stay_apart(tmp_path: Path) -> None:
    made = file(tmp_path, FILE.replace("users = [4, 1, 2]", "users = [1, 2], sessions = [3, 5]"))
    found = held(made, {})
    assert [(one.arm, one.setting) for one in found] == [
        ("off", "sessions=3"), ("on", "sessions=3"), ("off", "sessions=5"), ("on", "sessions=5"),
    ]  # fmt: skip


def test_it_stands_in_the_verdict(tmp_path: Path) -> None:
    plain = experiment(runs=2)
    cells = [Cell(name=f"users={n}", values={"users": n}) for n in (1, 2)]
    spec = msgspec.structs.replace(plain.spec, within=Within(ttft_s=4.0), sweep={"users": [1, 2]})
    made = Experiment(spec=spec, sha256="", cells=cells, primary="users=2")
    folder = tmp_path / "e"
    state = begin(made, folder)
    for step in state.plan:
        slow = 5.0 if (step.arm, step.cell) == ("a0", "users=2") else 1.0
        write_folder(folder / step.folder, step.arm, step.rep, reuse_s=slow)
        state.results.append(Result(index=step.index, attempt=0, folder=step.folder, started="", code=0))
    data = json.loads(json.dumps(present.as_json(made, judge(made, state, folder))))
    assert [(one["arm"], one["sessions"], one["missed"]) for one in data["held"]] == [
        ("a0", 1, 2),
        ("a1", 2, None),
    ]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("users = [4, 1, 2]", "sessions = [4, 1, 2]"),
        ("users = [4, 1, 2]", 'users = ["4", 1]'),
        ("ttft_s = 8.0", "ttft_s = 0.0"),
        ("share = 0.9", "share = 90"),
        ("gpus = 2", "gpus = 0"),
    ],
)
def test_what_cannot_work_is_said(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(InputError, match=r"\[within\] needs"):
        file(tmp_path, FILE.replace(old, new))


def test_without_a_limit_nothing_is_said(tmp_path: Path) -> None:
    plain: Any = experiment()
    assert held(plain, {}) == []
    assert sentences(plain, []) == []
