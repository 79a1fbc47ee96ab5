"""The GitHub Action at the root of the repository: what GitHub reads, and what its steps do."""

from __future__ import annotations

import argparse
import importlib
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from synthetic import sweep

from loadgen.cli import COMMANDS

MakeRun = Callable[..., Path]
ROOT = Path(__file__).parents[2]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
WORKFLOW: dict[str, Any] = yaml.safe_load(
    (ROOT / "examples/ci/github-workflow.yml").read_text(encoding="utf-8")
)
GITLAB: dict[str, Any] = yaml.safe_load((ROOT / "examples/ci/gitlab-ci.yml").read_text(encoding="utf-8"))
INSTALL, JUDGE = ACTION["runs"]["steps"]


def test_it_is_a_composite_action() -> None:
    assert {"name", "description", "inputs", "runs"} <= ACTION.keys()
    assert ACTION["runs"]["using"] == "composite"
    assert all(step["shell"] == "bash" for step in (INSTALL, JUDGE))
    assert all("description" in one and isinstance(one["default"], str) for one in ACTION["inputs"].values())
    used = {re.fullmatch(r"\$\{\{ inputs\.(\w+) \}\}", value)[1] for value in JUDGE["env"].values()}  # type: ignore[index]
    assert used == ACTION["inputs"].keys()


def test_the_workflow_gives_it_what_it_takes() -> None:
    steps = WORKFLOW["jobs"]["gate"]["steps"]
    ours = [step for step in steps if step.get("uses", "").startswith("OWNER/loadgen@")]
    assert len(ours) == 2
    assert all(step.get("with", {}).keys() <= ACTION["inputs"].keys() for step in ours)


def test_every_command_of_the_jobs_is_one() -> None:
    steps = [step["run"] for step in WORKFLOW["jobs"]["gate"]["steps"] if "run" in step]
    found = [
        command
        for script in (*steps, *GITLAB["kv-cache-regression"]["script"])
        for command in re.findall(r"\bloadgen (?:run|gate) [^;|\n]*", script)
    ]
    assert len(found) == 3
    for command in found:
        _, name, *words = shlex.split(command)
        parser = argparse.ArgumentParser(exit_on_error=False)
        importlib.import_module(COMMANDS[name][0]).add_arguments(parser)
        parser.parse_args(words)


def environment(tmp_path: Path) -> dict[str, str]:
    """A job's, with `loadgen` on the path."""
    programs = tmp_path / "bin"
    programs.mkdir()
    program = programs / "loadgen"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m loadgen "$@"\n')
    program.chmod(0o755)
    return {
        **os.environ,
        "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md"),
        "GITHUB_PATH": str(tmp_path / "path"),
        "GITHUB_ACTION_PATH": str(ROOT),
        "RUNNER_TEMP": str(tmp_path),
    }


def step(script: str, env: dict[str, str], folder: Path) -> int:
    """As GitHub runs a step with `shell: bash`."""
    command = ["bash", "--noprofile", "--norc", "-e", "-o", "pipefail", "-c", script]
    return subprocess.run(command, env=env, cwd=folder, timeout=120, capture_output=True).returncode


@pytest.mark.parametrize(("limit_s", "code"), [(30.0, 0), (1.0, 1)])
def test_it_judges(make_run: MakeRun, tmp_path: Path, limit_s: float, code: int) -> None:
    run = make_run(sweep(reuse_s=6.6), name="a run")  # the quotes hold
    (tmp_path / "my slo.toml").write_text(
        f'[[slo]]\nmetric = "ttft"\ngroup = "reuse"\npercentile = 90\nmax_s = {limit_s}\n'
    )
    inputs = {"RUNS": str(run), "SLO": "my slo.toml", "BASELINE": "", "HISTORY": "", "JUNIT": "j.xml"}
    assert inputs.keys() == JUDGE["env"].keys()
    assert step(JUDGE["run"], environment(tmp_path) | inputs, tmp_path) == code
    assert "<testsuite" in (tmp_path / "j.xml").read_text()
    assert "loadgen gate" in (tmp_path / "summary.md").read_text()


def test_it_installs_nothing_over_what_is_there(tmp_path: Path) -> None:
    assert step(INSTALL["run"], environment(tmp_path), tmp_path) == 0
    assert not (tmp_path / "loadgen").exists()
    assert not (tmp_path / "path").exists()
