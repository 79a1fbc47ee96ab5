"""The commands of the compose file and of the Backend.AI client, run here with the names of hosts and folders replaced."""

from __future__ import annotations

import json
import os
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from processes import Process, only_run

DEPLOY = Path(__file__).resolve().parents[2] / "deploy"
pytestmark = pytest.mark.nightly


def tools(folder: Path) -> str:
    """A PATH on which loadgen and locust are those under test."""
    folder.mkdir()
    for name in ("loadgen", "locust"):
        (folder / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -m {name} "$@"\n')
        (folder / name).chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_master_and_workers_of_the_compose_file_play_a_run(
    endpoint: str, cache: Path, tmp_path: Path
) -> None:
    yaml = pytest.importorskip("yaml")
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {"PATH": tools(tmp_path / "bin"), "HOST": endpoint, "LOADGEN_OUT": str(tmp_path / "runs")}
    environment |= {"LOCUST_MASTER_BIND_PORT": str(port), "LOCUST_MASTER_NODE_PORT": str(port)}

    def start(service: str) -> Process:
        (script,) = services[service]["command"]
        script = script.replace("$$", "$").replace("--master-host master", "--master-host 127.0.0.1")
        return Process([*services[service]["entrypoint"], script], cache, environment)

    processes = [start("master"), start("worker"), start("worker")]
    code, _, err = processes[0].wait(300)
    assert code in (0, 3), err
    for worker in processes[1:]:
        worker.wait()
    folder = only_run(tmp_path / "runs")
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["groups"]["all"]["turns"] == 16 * 4
    assert len(list(folder.glob("samples-*.jsonl"))) == 2


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_the_backend_ai_client_leaves_runs_and_a_comparison(
    endpoint: str, cache: Path, tmp_path: Path
) -> None:
    environment = {
        k: v for k, v in os.environ.items() if not k.startswith(("LOADGEN_", "LOCUST_", "OPENAI_"))
    }
    environment |= {
        "PATH": tools(tmp_path / "bin"),
        "RESULTS": str(tmp_path / "results"),
        "LOADGEN_CACHE": str(cache),
        "LOADGEN_ARGUMENTS": "--sessions 2 --turns 2 --context-tokens 2000 --output-tokens 8",
    }
    (tmp_path / "results").mkdir()
    for arm in ("off", "offload"):
        command = ["bash", str(DEPLOY / "backend-ai" / "client.sh"), endpoint, arm]
        done = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=600, check=False
        )
        assert "Traceback" not in done.stderr
        assert len(list((tmp_path / "results" / arm).glob("*/summary.json"))) == 6, done.stderr
    assert (tmp_path / "results" / "compare.html").is_file()
