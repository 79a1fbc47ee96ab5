"""Workloads and locustfiles that ship: valid, short, paired and named in the docs."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from doc_pages import DOCS, ROOT

from loadgen import paths
from loadgen.errors import InputError
from loadgen.replay.options import read_workload, resolve
from loadgen.replay.scenario import workload

LOCUSTFILES = sorted((ROOT / "locustfiles").glob("*.py"))
WORKLOADS = [
    p for p in sorted((ROOT / "workloads").glob("*.toml")) if "arms" not in tomllib.loads(p.read_text())
]


@pytest.mark.parametrize("path", LOCUSTFILES, ids=lambda path: path.stem)
def test_a_locustfile_is_short_and_uses_a_workload_that_ships(path: Path) -> None:
    text = path.read_text()
    assert len(text.splitlines()) < 40
    for name in re.findall(r'^workload\("(.+)"\)$', text, re.MULTILINE):
        assert read_workload(Path(name)), name


@pytest.mark.parametrize("path", WORKLOADS, ids=lambda path: path.stem)
def test_a_workload_resolves_and_stands_in_the_docs(path: Path) -> None:
    options = resolve({}, read_workload(path))
    assert options.trace is None or paths.find(options.trace).is_file()
    assert f"`{path.name}`" in (DOCS / "scenarios.md").read_text()


def test_a_shipped_workload_is_found_by_its_name_and_a_file_of_that_name_wins(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert read_workload(Path("chat.toml"))["corpus"] == "chat"
    (tmp_path / "chat.toml").write_text('corpus = "mine"')
    assert read_workload(Path("chat.toml"))["corpus"] == "mine"
    with pytest.raises(InputError, match=r"there is no workload file nowhere\.toml"):
        read_workload(Path("nowhere.toml"))


def test_every_workload_has_a_locustfile() -> None:
    used = {name for path in LOCUSTFILES for name in re.findall(r'workload\("(.+)"\)', path.read_text())}
    assert {path.name for path in WORKLOADS} - used == {"agents.toml"}, (
        "agent_loop.py takes its workload from flags"
    )


def test_a_workload_gives_defaults_and_the_environment_wins(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "w.toml"
    file.write_text(
        'host = "http://h:1"\nusers = 3\n[trace]\nsessions = 7\nturns = 2\nshuffle = true\n[endpoint]\nendpoint = ["http://a", "http://b"]\n'
    )
    for variable in (
        "LOADGEN_SESSIONS",
        "LOADGEN_SHUFFLE",
        "LOADGEN_ENDPOINT",
        "LOCUST_USERS",
        "LOCUST_HOST",
    ):
        monkeypatch.setenv(variable, "placeholder")  # so that it is taken back at the end
        monkeypatch.delenv(variable)
    monkeypatch.setenv("LOADGEN_TURNS", "9")
    workload(str(file))
    options = resolve({})
    assert (options.sessions, options.turns, options.shuffle) == (7, 9, True)
    assert list(options.endpoint) == ["http://a", "http://b"]
    assert (os.environ["LOCUST_USERS"], os.environ["LOCUST_HOST"]) == ("3", "http://h:1")
    assert resolve({"sessions": 1}).sessions == 1


@pytest.mark.parametrize("content", ["nonsense = 1", "not TOML", None])
def test_a_workload_that_makes_no_sense_ends_with_one_sentence(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "locustfile.py"
    if content is not None:
        (tmp_path / "w.toml").write_text(content)
    file.write_text(
        "from loadgen.replay.plugin import Agent\nfrom loadgen.replay.scenario import workload\nworkload('w.toml')\nclass A(Agent): pass\n"
    )
    command = [sys.executable, "-m", "locust", "-f", str(file), "--headless", "--host", "http://127.0.0.1:1"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        check=False,
    )
    assert done.returncode == 2, done.stderr
    assert done.stderr.startswith("loadgen: ")
    assert "Traceback" not in done.stderr
