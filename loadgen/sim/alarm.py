"""A wake-up at an absolute time of the monotonic clock.

asyncio rounds timeouts up to whole milliseconds (epoll's unit), which is a whole decode step at 20 times real
time. Linux has timers that are files and fire to the microsecond; elsewhere asyncio's own timer serves.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
import sys
import time
from collections.abc import Callable

_MONOTONIC, _NONBLOCK_CLOEXEC, _ABSOLUTE = 1, os.O_NONBLOCK | getattr(os, "O_CLOEXEC", 0), 1


class _Spec(ctypes.Structure):
    _fields_ = (
        ("interval_s", ctypes.c_long),
        ("interval_ns", ctypes.c_long),
        ("s", ctypes.c_long),
        ("ns", ctypes.c_long),
    )


class Alarm:
    """Calls `ring` on the running loop at the time last given to `set`."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._fd = -1
        if sys.platform == "linux":
            self._libc = ctypes.CDLL(None, use_errno=True)
            self._fd = self._libc.timerfd_create(_MONOTONIC, _NONBLOCK_CLOEXEC)
        if self._fd >= 0:
            self._loop.add_reader(self._fd, self._fired)

    def set(self, at: float) -> None:
        """Ring at `at` (`time.monotonic()` seconds) instead of any earlier setting."""
        if self._fd >= 0:
            spec = _Spec(0, 0, int(at), max(1, int(at % 1 * 1e9)))
            self._libc.timerfd_settime(self._fd, _ABSOLUTE, ctypes.byref(spec), None)
            return
        if self._handle is not None:
            self._handle.cancel()
        self._handle = self._loop.call_at(self._loop.time() + at - time.monotonic(), self._ring)

    def close(self) -> None:
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1
        if self._handle is not None:
            self._handle.cancel()

    def _fired(self) -> None:
        with contextlib.suppress(BlockingIOError):  # set again in the meantime
            os.read(self._fd, 8)
            self._ring()
