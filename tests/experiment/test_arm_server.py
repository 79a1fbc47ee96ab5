"""Servers come up, say why when they do not, and leave nothing behind."""

from __future__ import annotations

import os
import shlex
import signal
import sys
import time
from pathlib import Path

import pytest

from loadgen.experiment.server import Server, ServerError
from loadgen.experiment.spec import Arm

LISTEN = f"exec {shlex.quote(sys.executable)} -m http.server --bind 127.0.0.1 {{port}}"


def arm(start: str | None, **changes: object) -> Arm:
    values = {"name": "a", "host": "127.0.0.1:{port}", "ready": "/", "start_timeout_s": 20.0, **changes}
    return Arm(start=start, **values)  # type: ignore[arg-type]


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


def gone(pid: int) -> bool:
    deadline = time.monotonic() + 10
    while alive(pid) and time.monotonic() < deadline:
        time.sleep(0.02)
    return not alive(pid)


def test_a_server_in_the_foreground_starts_and_stops(tmp_path: Path) -> None:
    server = Server(arm(f"echo $$ > {tmp_path}/pid; {LISTEN}"), tmp_path / "log")
    assert not server.up
    server.start(None)
    assert server.up
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    server.stop()
    assert not server.up
    assert gone(pid)
    server.stop()  # twice does no harm


def test_a_start_command_that_comes_back_leaves_its_server_running(tmp_path: Path) -> None:
    start = f"({LISTEN}) & echo $! > {tmp_path}/pid"
    server = Server(arm(start), tmp_path / "log")
    server.start(None)
    pid = int((tmp_path / "pid").read_text())
    assert alive(pid)
    server.stop()
    assert gone(pid)


def test_the_stop_command_runs_with_the_arms_environment(tmp_path: Path) -> None:
    server = Server(
        arm(LISTEN, stop=f"echo $COLOUR {{port}} > {tmp_path}/stopped", env={"COLOUR": "green"}),
        tmp_path / "log",
    )
    server.start(None)
    server.stop()
    assert (tmp_path / "stopped").read_text().split() == ["green", server.url.rsplit(":", 1)[1]]


@pytest.mark.parametrize(
    ("start", "why"),
    [("echo no such model; exit 7", "code 7; .*no such model"), ("sleep 60", "did not answer in 0.5 s")],
)
def test_a_server_that_does_not_come_up_says_why(tmp_path: Path, start: str, why: str) -> None:
    server = Server(arm(start, start_timeout_s=0.5 if "sleep" in start else 20.0), tmp_path / "log")
    with pytest.raises(ServerError, match=why):
        server.start(None)
    server.stop()


def test_another_server_at_the_same_address_is_not_taken_for_the_arms(tmp_path: Path) -> None:
    other = Server(arm(LISTEN), tmp_path / "other")
    other.start(None)
    mine = Server(arm(f"touch {tmp_path}/started", host=other.url), tmp_path / "log")
    with pytest.raises(ServerError, match="another server is there"):
        mine.start(None)
    other.stop()
    assert not (tmp_path / "started").exists()


def test_a_server_that_died_is_started_again(tmp_path: Path) -> None:
    server = Server(arm(f"echo $$ > {tmp_path}/pid; {LISTEN}"), tmp_path / "log")
    server.start(None)
    server.start(None)
    assert server.starts == 1
    os.kill(int((tmp_path / "pid").read_text()), signal.SIGKILL)
    while server.answers(None):
        time.sleep(0.02)
    server.start(None)
    assert (server.starts, server.answers(None)) == (2, True)
    server.stop()
    assert not server.answers(None)


def test_somebody_elses_endpoint_is_left_alone(tmp_path: Path) -> None:
    server = Server(Arm(name="a", host="127.0.0.1:9"), tmp_path / "log")
    server.start(None)
    assert server.up
    assert server.starts == 0
    server.stop()
    assert not (tmp_path / "log").exists()
