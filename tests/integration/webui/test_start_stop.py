"""Start, more users, reset statistics, stop, start again: what people press in Locust's web UI."""

from __future__ import annotations

import os
import signal
import socket
import sys
import time
import urllib.parse
import urllib.request
from pathlib import Path

from processes import Process, samples_in, wait_for_samples

from loadgen import paths
from loadgen.measure.run import read_run


def ask(url: str, **form: object) -> str:
    data = urllib.parse.urlencode(form).encode() if form else None
    with urllib.request.urlopen(url, data, timeout=30) as answer:
        return str(answer.read().decode())


def wait_for_finished(out: Path, runs: int) -> list[Path]:
    deadline = time.monotonic() + 60
    while True:
        folders = sorted(path.parent for path in out.glob("*/summary.json"))
        if len(folders) >= runs and all(read_run(folder).state != "running" for folder in folders):
            return folders
        assert time.monotonic() < deadline, folders
        time.sleep(0.1)


def test_the_buttons_of_the_web_ui(endpoint: str, cache: Path, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    words = [
        "--schedule",
        "closed",
        "--sessions",
        "6",
        "--turns",
        "6",
        "--context-tokens",
        "1000",
        "--output-tokens",
        "300",
    ]
    process = Process(
        [sys.executable, "-m", "locust", "-f", str(paths.find("agent_loop.py")), "--host", endpoint, "--web-port", str(port),
         *words, "--out", str(tmp_path)],
        cache,
    )  # fmt: skip
    base = f"http://127.0.0.1:{port}"
    try:
        deadline = time.monotonic() + 60
        while True:
            try:
                ask(base)
                break
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.1)
        ask(f"{base}/swarm", user_count=1, spawn_rate=10, host=endpoint)
        before = wait_for_samples(tmp_path, 2)
        ask(f"{base}/swarm", user_count=3, spawn_rate=10, host=endpoint)  # more lanes, the same run
        ask(f"{base}/stats/reset", really=1)
        wait_for_samples(tmp_path, before + 4)
        ask(f"{base}/swarm", user_count=1, spawn_rate=10, host=endpoint)  # lanes go, their sessions are cut
        ask(f"{base}/stop", really=1)
        first = wait_for_finished(tmp_path, 1)
        ask(f"{base}/swarm", user_count=2, spawn_rate=10, host=endpoint)
        second = wait_for_finished(tmp_path, 2)
    finally:
        os.killpg(process.popen.pid, signal.SIGTERM)
        process.wait()
    assert len(first) == 1
    assert read_run(first[0]).merged_exactly, "a reset of Locust's statistics touched ours"
    assert read_run(first[0]).state == "cut"
    again = next(folder for folder in second if folder != first[0])
    assert read_run(again).state == "finished"
    found = samples_in(again)
    assert len(found) == 36
    assert all(s["cached_tokens"] == 0 for s in found if s["class"] == "first"), (
        "the second run met the first one's prompts"
    )
