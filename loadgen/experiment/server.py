"""Bringing an arm's server up and down again."""

from __future__ import annotations

import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

from loadgen.errors import LoadgenError
from loadgen.experiment.spec import Arm
from loadgen.replay.endpoint import Api
from loadgen.replay.wire.target import Target

_GRACE_S = 30.0


class ServerError(LoadgenError):
    """A server could not be started; nothing was measured on it."""

    exit_code = 3


class Server:
    """One arm's server; `url` is where it answers. An arm without `start` is somebody else's and is left alone."""

    def __init__(self, arm: Arm, log: Path) -> None:
        self._arm, self._log = arm, log
        self._process: subprocess.Popen[bytes] | None = None
        port = str(_free_port()) if "{port}" in f"{arm.host}{arm.start}{arm.stop}" else ""
        self._words = {"{port}": port, "{loadgen}": f"{shlex.quote(sys.executable)} -m loadgen"}
        self.url = self._fill(arm.host)
        self.up = arm.start is None
        self.starts = 0

    def answers(self, key: str | None) -> bool:
        """Whether it answers at this moment."""
        return _answers(Api(Target.parse(self.url), key, timeout_s=10.0), self._arm.ready)

    def start(self, key: str | None) -> None:
        """Run the start command and wait until the server answers. Raises ServerError with the log's last lines.

        A server of ours that was up and has died since is started again.
        """
        if self._arm.start is None:
            return
        if self.up:
            if self.answers(key):
                return
            self.stop()
        if self.answers(key):
            raise ServerError(
                f"arm {self._arm.name}: {self.url} answers before the arm was started: another server is there, and would be measured instead"
            )
        self._log.parent.mkdir(parents=True, exist_ok=True)
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                ["/bin/sh", "-c", self._fill(self._arm.start)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self._arm.env},
                start_new_session=True,
            )
        deadline = time.monotonic() + self._arm.start_timeout_s
        while time.monotonic() < deadline:
            code = self._process.poll()
            if code:
                raise ServerError(self._failed(f"its start command ended with code {code}"))
            if self.answers(key):
                self.up = True
                self.starts += 1
                return
            time.sleep(0.1)
        self.stop()
        raise ServerError(
            self._failed(f"{self.url}{self._arm.ready} did not answer in {self._arm.start_timeout_s:g} s")
        )

    def stop(self) -> None:
        """Run the stop command, then end what the start command left in its process group."""
        if self._process is None:
            return
        if self._arm.stop is not None:
            with self._log.open("ab") as log:
                subprocess.run(
                    ["/bin/sh", "-c", self._fill(self._arm.stop)],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env={**os.environ, **self._arm.env},
                    timeout=300,
                    check=False,
                )
        _end_group(self._process)
        self._process = None
        self.up = False

    def _fill(self, text: str) -> str:
        for word, value in self._words.items():
            text = text.replace(word, value)
        return text

    def _failed(self, why: str) -> str:
        try:
            tail = " | ".join(self._log.read_text(errors="replace").splitlines()[-3:])
        except OSError:
            tail = ""
        return f"arm {self._arm.name} did not start: {why}; {self._log} ends with: {tail or '(nothing)'}"


def _answers(api: Api, path: str) -> bool:
    try:
        status, _, _ = api.request("GET", path)
    except LoadgenError:
        return False
    return status == 200


def _end_group(process: subprocess.Popen[bytes]) -> None:
    """End the session that `start` opened: ask, wait, then insist."""
    for kind in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(process.pid, kind)
        except ProcessLookupError:
            break
        deadline = time.monotonic() + _GRACE_S
        while time.monotonic() < deadline:
            process.poll()  # collects the shell, so that an empty group is seen as gone
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.05)
    process.wait(_GRACE_S)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
