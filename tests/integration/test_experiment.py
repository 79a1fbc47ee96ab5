"""A small experiment from its file to its verdict, on simulated endpoints that it starts and stops itself."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

FILE = """
name = "small"
runs = 2
differ = ["connector", "capacity_tokens"]
[workload]
sessions = 2
turns = 2
context_tokens = 1500
new_tokens = 50
output_tokens = 4
[prepare]
restart = "never"
warmup_turns = 0
[[arms]]
name = "off"
host = "http://127.0.0.1:{port}"
start = "{loadgen} sim --profile blog --arm off --scale 5 --port {port}"
[[arms]]
name = "offload"
host = "http://127.0.0.1:{port}"
start = "{loadgen} sim --profile blog --arm offload --scale 5 --port {port}"
"""


def loadgen(tmp_path: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "loadgen", *words],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={
            **os.environ,
            "PYTHONPATH": str(Path(__file__).parents[2]),
            "LOADGEN_CACHE": str(tmp_path / "cache"),
        },
    )


@pytest.mark.nightly
def test_from_file_to_verdict_and_on_after_a_break(tmp_path: Path) -> None:
    (tmp_path / "e.toml").write_text(FILE)
    first = loadgen(tmp_path, "experiment", "e.toml", "--out", "out", "--json")
    assert "Traceback" not in first.stderr
    assert "power:" in first.stderr
    result = json.loads(first.stdout)
    (cell,) = result["cells"]
    assert {name: arm["runs"] for name, arm in cell["arms"].items()} == {"off": 2, "offload": 2}, first.stderr
    assert all(arm["reuse_ttft_s"] > 0 and arm["cached_share"] > 0.9 for arm in cell["arms"].values())
    assert first.returncode == result["exit_code"]
    assert result["exit_code"] in (3, 4)  # two runs an arm decide nothing; a busy machine makes them invalid
    assert result["reasons"] == []
    names = {folder.name for folder in (tmp_path / "out").iterdir() if folder.is_dir()}
    assert {
        "off.r00",
        "off.r01",
        "offload.r00",
        "offload.r01",
    } <= names  # and repetitions of what a busy client spoilt

    path = tmp_path / "out/experiment.json"
    state = json.loads(path.read_text())
    assert {stamp["step"] for stamp in state["results"][-1]["preparation"]} == {"restart", "reset", "drain"}
    scopes = [json.loads((tmp_path / "out" / r["folder"] / "run.json").read_text()) for r in state["results"]]
    nonces = {(run["experiment"], run["arm"], run["rep"]) for run in scopes}
    assert len(nonces) == len(state["results"])  # no two runs, nor attempts at one, share their prompts
    broken = state["results"][-1]["index"]
    before = len(state["results"])
    for result in state["results"]:
        if result["index"] == broken:
            result["code"] = None  # as a power cut would leave it
    path.write_text(json.dumps(state))
    again = loadgen(tmp_path, "experiment", "e.toml", "--resume", "out", "--json")
    assert "Traceback" not in again.stderr
    resumed = json.loads(path.read_text())["results"][before:]
    assert {result["index"] for result in resumed} == {broken}
    assert resumed[0]["attempt"] == sum(1 for r in state["results"] if r["index"] == broken)
    assert resumed[-1]["code"] in (0, 3)
    assert json.loads(again.stdout)["missing_runs"] == 0

    changed = (tmp_path / "e.toml").read_text().replace("runs = 2", "runs = 4")
    (tmp_path / "e.toml").write_text(changed)
    refused = loadgen(tmp_path, "experiment", "e.toml", "--resume", "out")
    assert refused.returncode == 2
    assert "has changed" in refused.stderr
