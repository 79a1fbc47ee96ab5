"""Experiment files: what is wrong with one is said in a sentence, before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.errors import InputError
from loadgen.experiment.spec import load

ARMS = """
[[arms]]
name = "off"
host = "127.0.0.1:1"
[[arms]]
name = "on"
host = "127.0.0.1:2"
workload = { output_tokens = 8 }
"""
GOOD = f'name = "e"\nworkload = {{ sessions = 3, turns = 2 }}\n{ARMS}'


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "e.toml"
    path.write_text(text)
    return path


def test_cells_arms_and_workloads(tmp_path: Path) -> None:
    text = (
        'name = "e"\nruns = 4\nsweep = { sessions = [2, 4], width = [1, 2] }\nprimary = { sessions = 2, width = 1 }\n'
        + ARMS
    )
    text += "[controls]\nnegative = { sessions = 1 }\n[workload]\nturns = 3\nsessions = 9\n"
    found = load(write(tmp_path, text))
    assert [c.name for c in found.cells] == [
        "sessions=2,width=1",
        "sessions=2,width=2",
        "sessions=4,width=1",
        "sessions=4,width=2",
        "control",
    ]
    assert [c.kind for c in found.cells][-2:] == ["measure", "negative"]
    assert found.primary == "sessions=2,width=1"
    assert found.workload("on", "sessions=4,width=2") == {
        "turns": 3,
        "sessions": 4,
        "output_tokens": 8,
        "width": 2,
    }
    assert found.workload("off", "control") == {"turns": 3, "sessions": 1}


def test_without_a_sweep_there_is_one_nameless_cell(tmp_path: Path) -> None:
    found = load(write(tmp_path, GOOD))
    assert [cell.name for cell in found.cells] == [""]
    assert found.primary == ""


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("name = ", "not valid TOML"),
        ('name = "e"\narms = []', "two arms"),
        ('name = "e"', "arms"),
        (GOOD + '[[arms]]\nname = "on"\nhost = "x"', "one name"),
        ("runs = 3\n" + GOOD, "even"),
        ("runs = 0\n" + GOOD, "even"),
        ("tolerance = 1.5\n" + GOOD, "tolerance"),
        ("expected_sd = 0.0\n" + GOOD, "expected_sd"),
        ("colour = 1\n" + GOOD, "colour"),
        (GOOD.replace('"off"', '"../off"'), "cannot be a name"),
        (GOOD.replace('name = "e"', 'name = "a b"'), "cannot be a name"),
        (GOOD.replace("127.0.0.1:1", "127.0.0.1:{port}"), "needs a start command"),
        (GOOD.replace("127.0.0.1:1", "ftp://x"), "arm off: .*not the address"),
        (GOOD.replace("sessions = 3", "sessionz = 3"), "no option"),
        (GOOD.replace("sessions = 3", "sessions = 0"), "at least 1"),
        (GOOD.replace("sessions = 3", 'sessions = "three"'), "should be a int"),
        (GOOD.replace("sessions = 3", "rep = 3"), "set by the experiment"),
        ("sweep = { width = [] }\n" + GOOD, "needs values"),
        ("sweep = { width = [1, 1] }\n" + GOOD, "each once"),
        ("sweep = { width = [1] }\nprimary = { width = 3 }\n" + GOOD, "no cell"),
        (GOOD + "[prepare]\nwarmup_turns = -1", "cannot be negative"),
        (GOOD + "[controls]\npositive = 0", "positive"),
        (GOOD + '[[arms]]\nname = "x"\nhost = "h"\nstop = "true"', "stop without start"),
    ],
)
def test_mistakes(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InputError, match=sentence):
        load(write(tmp_path, text))


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="cannot be read"):
        load(tmp_path / "none.toml")
    (tmp_path / "b.toml").write_bytes(b"\xff")
    with pytest.raises(InputError, match="not valid TOML"):
        load(tmp_path / "b.toml")
