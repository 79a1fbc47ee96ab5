"""Commands run as a user runs them, and what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

CACHE = "LOADGEN_CACHE"


class Process:
    """`loadgen …` or `locust …` under way."""

    def __init__(self, command: list[str], cache: Path, env: dict[str, str] | None = None) -> None:
        environment = {
            k: v for k, v in os.environ.items() if not k.startswith(("LOADGEN_", "LOCUST_", "OPENAI_"))
        }
        self.popen = subprocess.Popen(
            command,
            env={**environment, CACHE: str(cache), **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def wait(self, timeout_s: float = 120) -> tuple[int, str, str]:
        """Exit code, standard output, standard error; a traceback in either is a failure."""
        try:
            out, err = self.popen.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            os.killpg(self.popen.pid, signal.SIGKILL)
            out, err = self.popen.communicate()
            pytest.fail(f"still running after {timeout_s} s\n{out}\n{err}")
        assert "Traceback" not in out + err, out + err
        return self.popen.returncode, out, err

    def descendants(self, pid: int | None = None) -> list[int]:
        """Child processes, parents first."""
        found = []
        for child in _children(pid or self.popen.pid):
            found += [child, *self.descendants(child)]
        return found


def _children(pid: int) -> list[int]:
    try:
        tasks = Path(f"/proc/{pid}/task").iterdir()
        return [int(child) for task in tasks for child in (task / "children").read_text().split()]
    except OSError:
        return []


def samples_in(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in folder.rglob("samples-*.jsonl") for line in path.read_text().splitlines()
    ]


def wait_for_samples(folder: Path, n: int, timeout_s: float = 60) -> int:
    """Wait until a run has that many; returns how many there are."""
    deadline = time.monotonic() + timeout_s
    while (found := len(samples_in(folder))) < n:
        assert time.monotonic() < deadline, f"{found} of {n} samples after {timeout_s} s"
        time.sleep(0.02)
    return found


def only_run(out: Path) -> Path:
    folders = [path.parent for path in out.rglob("run.json")]
    assert len(folders) == 1, folders
    return folders[0]
