"""What loadgen starts for itself ends with it, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest
from processes import Process, only_run, samples_in, wait_for_samples

from loadgen.experiment.simulated import simulated_endpoint
from loadgen.measure.run import read_run

Start = Callable[..., Process]
nightly = pytest.mark.nightly  # the other signals: each takes seconds
LONG = ("--sessions", "6", "--turns", "40", "--context-tokens", "2000", "--output-tokens", "400")


def everyone_of(process: Process) -> list[psutil.Process]:
    return [psutil.Process(pid) for pid in (process.popen.pid, *process.descendants())]


def gone(everyone: list[psutil.Process], process: Process) -> None:
    process.popen.communicate(timeout=60)
    left = psutil.wait_procs(everyone, timeout=60)[1]
    for one in left:
        one.kill()
    assert not left, left


def a_sim(process: Process) -> bool:
    words = [psutil.Process(pid).cmdline() for pid in process.descendants()]
    return any("sim" in command for command in words)


@pytest.mark.parametrize(
    ("playing", "number"),
    [
        (False, signal.SIGHUP),
        (True, signal.SIGKILL),
        *(pytest.param(False, n, marks=nightly) for n in (signal.SIGTERM, signal.SIGINT, signal.SIGKILL)),
        *(pytest.param(True, n, marks=nightly) for n in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT)),
    ],
)
def test_the_demo_takes_its_server_with_it(
    loadgen: Start, tmp_path: Path, number: signal.Signals, playing: bool
) -> None:
    words = ("--contexts", "4", "--tokens", "2000", "--turns", "40", "--scale", "1", "--output-tokens", "400")
    process = loadgen("demo", *words, "-o", str(tmp_path))
    if playing:
        wait_for_samples(tmp_path, 1)
    while not a_sim(process):
        assert process.popen.poll() is None, process.popen.communicate()
        time.sleep(0.01)
    everyone = everyone_of(process)
    process.popen.send_signal(number)
    gone(everyone, process)


@pytest.mark.parametrize("workers", [(), ("--processes", "2", "--width", "2")], ids=["alone", "workers"])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGHUP])
def test_locust_ends_with_the_run_and_keeps_its_samples(
    endpoint: str, loadgen: Start, tmp_path: Path, workers: tuple[str, ...], number: signal.Signals
) -> None:
    process = loadgen("run", "--host", endpoint, *LONG, *workers, "--out", str(tmp_path))
    before = wait_for_samples(tmp_path, 3)
    everyone = everyone_of(process)
    process.popen.send_signal(number)
    gone(everyone, process)
    assert process.popen.returncode == (130 if number == signal.SIGHUP else -9)
    assert read_run(only_run(tmp_path)).state == "interrupted"
    assert before <= len(samples_in(tmp_path)) < 240


@pytest.mark.parametrize(
    "number",
    [signal.SIGKILL, *(pytest.param(n, marks=nightly) for n in (signal.SIGHUP, signal.SIGTERM))],
)
def test_a_run_ends_with_its_experiment(
    endpoint: str, loadgen: Start, tmp_path: Path, number: signal.Signals
) -> None:
    file = tmp_path / "experiment.toml"
    workload = "sessions = 6\nturns = 40\ncontext_tokens = 2000\noutput_tokens = 400"
    arms = "".join(f'[[arms]]\nname = "{arm}"\nhost = "{endpoint}"\n' for arm in ("off", "offload"))
    file.write_text(f'name = "e"\nruns = 2\n[workload]\n{workload}\n[prepare]\nwarmup_turns = 0\n{arms}')
    process = loadgen("experiment", str(file), "--out", str(tmp_path / "e"))
    wait_for_samples(tmp_path, 3)
    everyone = everyone_of(process)
    process.popen.send_signal(number)
    gone(everyone, process)
    assert len(samples_in(tmp_path)) < 240


def test_a_server_that_was_started_by_hand_stays() -> None:
    command = [sys.executable, "-m", "loadgen", "sim", "--port", "0", "--json"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE) as server:
        assert server.stdout is not None
        assert server.stdout.readline()
        with pytest.raises(subprocess.TimeoutExpired):
            server.wait(1)
        server.terminate()
        assert server.wait(60) == 0


def test_a_server_of_ours_holds_on_while_its_starter_lives() -> None:
    here = psutil.Process(os.getpid())
    before = {child.pid for child in here.children()}  # other tests have a server of their own
    with simulated_endpoint("blog", "off", 50.0):
        children = [child for child in here.children() if child.pid not in before]
        assert children
        assert not psutil.wait_procs(children, timeout=1)[0]
    assert not psutil.wait_procs(children, timeout=60)[1]


BUILDING = {
    "run": ("--schedule", "sweep", "--sessions", "60", "--context-tokens", "60000", "--corpus", "stdlib", "--turns", "1"),
    "demo": ("--contexts", "60", "--tokens", "60000"),
}  # fmt: skip


@pytest.mark.parametrize("burst", [pytest.param(1, marks=nightly), 6])
@pytest.mark.parametrize(
    ("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)]
)
@pytest.mark.parametrize("command", BUILDING)
def test_signals_while_contexts_are_built_leave_nothing(
    endpoint: str, tmp_path: Path, command: str, number: signal.Signals, expected: int, burst: int
) -> None:
    host = ("--host", endpoint) if command == "run" else ()
    words = [sys.executable, "-m", "loadgen", command, *host, *BUILDING[command]]
    out = tmp_path / "out"
    process = Process([*words, "--out", str(out)], tmp_path / "cache")
    while not list(tmp_path.rglob("context-*.txt")):
        assert process.popen.poll() is None, process.popen.communicate()
        time.sleep(0.01)
    everyone = everyone_of(process)
    for _ in range(burst):
        if process.popen.poll() is None:
            os.killpg(process.popen.pid, number)
        time.sleep(0.003)
    code, _, err = process.wait()
    assert code == expected, err
    assert not psutil.wait_procs(everyone, timeout=0)[1]
    assert not list(out.rglob("*"))
    assert not [path for path in (tmp_path / "cache").rglob("*") if path.is_file() or path.name[0] == "."]
