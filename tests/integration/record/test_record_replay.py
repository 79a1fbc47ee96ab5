"""The whole way: an agent works under the recorder, its trace is replayed, and the model is asked the same again."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from record_process import ROOT, Recorder
from record_upstream import Say, Seen, Upstream

Start = Callable[..., Recorder]
AGENT = ROOT / "examples" / "mini_agent" / "mini_agent.py"
STEPS: list[tuple[str, dict[str, Any]]] = [
    ("read", {"path": "calc.py"}),
    ("grep", {"pattern": "def "}),
    ("edit", {"path": "calc.py", "old": "a - b", "new": "a + b"}),
    ("read", {"path": "../outside"}),
    ("test", {}),
]


def script(seen: Seen) -> Say:
    done = sum(message["role"] == "tool" for message in seen.json["messages"])
    if done == len(STEPS):
        return Say("It adds now.")
    name, arguments = STEPS[done]
    return Say(f"Step {done}.", calls=[(f"call_{done}", name, arguments)])


@pytest.fixture
def repo(tmp_path: Path) -> Path:
    folder = tmp_path / "calc"
    folder.mkdir()
    (folder / "calc.py").write_text("def add(a, b):\n    return a - b\n")
    identity = ["-c", "user.name=n", "-c", "user.email=n@example.org"]
    for command in (["init", "-q"], ["add", "-A"], [*identity, "commit", "-qm", "first"]):
        subprocess.run(["git", *command], cwd=folder, check=True)
    return folder


@pytest.fixture
def sim() -> Iterator[str]:
    command = [sys.executable, "-m", "loadgen", "sim", "--scale", "50", "--port", "0", "--json"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    yield json.loads(process.stdout.readline())["url"]
    process.terminate()
    process.wait(20)


def prompts(record: Recorder) -> list[list[tuple[str, Any]]]:
    found: list[list[tuple[str, Any]]] = []
    prompt: list[tuple[str, Any]] = []
    for turn in record.records("turn"):
        added = [(message["role"], json.dumps(message, sort_keys=True)) for message in turn["append"]]
        prompt = prompt[: turn.get("keep")] + added
        found.append(prompt)
        prompt = [*prompt, ("assistant", json.dumps(turn["answer"], sort_keys=True))]
    return found


def test_agent_to_trace_to_replay(repo: Path, sim: str, recorder: Start, tmp_path: Path) -> None:
    with Upstream(script) as up:
        first = recorder(up.url)
        command = [
            sys.executable,
            str(AGENT),
            "--repo",
            str(repo),
            "--test-command",
            "git status --short",
            "make add add",
        ]
        environment = os.environ | {"OPENAI_BASE_URL": f"{first.url}/v1", "OPENAI_API_KEY": "dummy"}
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=120, check=True
        )
        first.stop()
    assert "It adds now." in done.stdout
    assert "calc.py | 2 +-" in done.stdout
    assert (repo / "calc.py").read_text().count("a - b") == 1  # it worked on a clone
    turns = first.records("turn")
    assert [turn["index"] for turn in turns] == list(range(len(STEPS) + 1))
    assert all("keep" not in turn for turn in turns)
    assert all(turn["gap"]["kind"] == "tool" for turn in turns[1:])
    assert "outside the repository" in turns[4]["append"][0]["content"]

    second = recorder(sim, name="again.jsonl")
    run = [
        sys.executable,
        "-m",
        "loadgen",
        "run",
        "--trace",
        str(first.out),
        "--host",
        second.url,
        "--schedule",
        "closed",
    ]
    played = subprocess.run(
        [*run, "-u", "1", "--run-dir", str(tmp_path / "run"), "--json"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert played.stdout, played.stderr
    everything = json.loads(played.stdout)["groups"]["all"]
    assert (everything["turns"], everything["errors"]) == (len(STEPS) + 1, 0)
    second.stop()
    original = prompts(first)[-1]
    replayed = max((prompt for prompt in prompts_of_sessions(second)), key=len)
    assert [role for role, _ in replayed] == [role for role, _ in original]
    assert replayed == original


def prompts_of_sessions(record: Recorder) -> Iterator[list[tuple[str, Any]]]:
    """The last prompt of every session: a run begins with requests of its own that measure the template."""
    for session in record.records("session"):
        prompt: list[tuple[str, Any]] = []
        last: list[tuple[str, Any]] = []
        for turn in record.records("turn"):
            if turn["session"] == session["id"] and "append" in turn:
                added = [(message["role"], json.dumps(message, sort_keys=True)) for message in turn["append"]]
                prompt = last[: turn.get("keep")] + added
                last = [*prompt, ("assistant", json.dumps(turn.get("answer"), sort_keys=True))]
        yield prompt
