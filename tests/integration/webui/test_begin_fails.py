"""A run that cannot begin ends, instead of standing with lanes that never get work."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from processes import Process

BROKEN = """
from loadgen.replay.fleet.worker import Worker
from loadgen.replay.plugin import Agent

def begin(*_):
    raise {error}

Worker.begin = begin

class Broken(Agent):
    pass
"""


@pytest.mark.parametrize(
    ("error", "expected"), [("RuntimeError('boom')", 70), ("ValueError('the trace changed')", 3)]
)
def test_a_worker_that_cannot_begin_ends_the_run(
    endpoint: str, cache: Path, tmp_path: Path, error: str, expected: int
) -> None:
    file = tmp_path / "broken.py"
    file.write_text(BROKEN.format(error=error))
    small = ["--sessions", "2", "--turns", "1", "--context-tokens", "2000", "--output-tokens", "4"]
    command = [sys.executable, "-m", "locust", "-f", str(file), "--headless", "--host", endpoint, *small]
    process = Process([*command, "--out", str(tmp_path / "runs")], cache)
    _, err = process.popen.communicate(timeout=120)
    assert process.popen.returncode == expected, err
    assert error.split("'")[1] in err
