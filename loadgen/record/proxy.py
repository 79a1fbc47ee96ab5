"""Starts the forwarding process and delivers what it reports."""

from __future__ import annotations

import contextlib
import select
import signal
import socket
import subprocess
import sys
import time
from collections import deque
from types import TracebackType
from typing import Self

import msgspec

from loadgen.errors import InputError, LoadgenError
from loadgen.record.exchange import Failed, FrameReader, Notice, Ready
from loadgen.record.forwarder import GRACE_S, Config

_READ_BYTES = 1 << 20
_START_TIMEOUT_S = 30.0


class Proxy:
    """The forwarding process as a context manager: `url` is where it listens, `next` what it saw.

    It has a process group of its own: Ctrl-C in the terminal reaches the scribe alone, which then stops it.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._frames = FrameReader()
        self._waiting: deque[Notice] = deque()
        self._ended = False

    def __enter__(self) -> Self:
        self._socket, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                [
                    sys.executable,
                    "-m",
                    "loadgen.record.forwarder",
                    str(theirs.fileno()),
                    msgspec.json.encode(self._config),
                ],
                pass_fds=[theirs.fileno()],
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
            )
        first = self.next(_START_TIMEOUT_S)
        if not isinstance(first, Ready):
            self._process.kill()
            self._process.wait()
            if isinstance(first, Failed):
                raise InputError(f"{first.reason}; choose another --port or --bind")
            raise LoadgenError("the forwarding process did not start; its message is above")
        self.ready = first
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(GRACE_S)
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def ended(self) -> bool:
        """The forwarding process is gone and everything it said was delivered."""
        return self._ended and not self._waiting

    def next(self, timeout_s: float) -> Notice | None:
        """The next notice, or None when none came in time or the process has ended."""
        deadline = time.monotonic() + timeout_s
        while not self._waiting and not self._ended:
            readable, _, _ = select.select([self._socket], [], [], max(deadline - time.monotonic(), 0))
            if not readable:
                return None
            with contextlib.suppress(ConnectionResetError):
                data = self._socket.recv(_READ_BYTES)
                self._waiting.extend(self._frames.feed(data))
                self._ended = not data
        return self._waiting.popleft() if self._waiting else None

    def stop(self) -> None:
        """Ask the process to end: it finishes what is in flight for a short while, then cuts it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)
