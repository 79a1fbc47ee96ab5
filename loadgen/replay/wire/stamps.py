"""Receive time stamps of the kernel (Linux, SO_TIMESTAMPNS) on the monotonic clock.

The kernel stamps with CLOCK_REALTIME. At each stamped read the two clocks are read as monotonic, realtime,
monotonic, and t = monotonic - (realtime - stamp): a step of the wall clock between two reads does no harm.
"""

from __future__ import annotations

import _socket
import socket
import struct
import sys
from time import monotonic_ns, time_ns
from typing import Any

SO_TIMESTAMPNS = 35  # <asm-generic/socket.h>; also the type of the control message
CONTROL_BYTES = 64  # room for one control message that holds a timespec
_TIMESPEC = struct.Struct("@ll")
_BRACKET_NS = 20_000  # a wider one was interrupted between its two readings


_awake: list[_socket.socket] = []


def keep_awake() -> None:
    """Make the kernel stamp from now on, for as long as this process lives.

    It stamps arrivals only while some socket asks for it, and begins a moment after the first one did: of answers
    that came at once on a machine's only such socket, half had no stamp (measured: 141 to 199 of 300; none with this).
    """
    if not _awake and sys.platform == "linux":
        idle = _socket.socket(socket.AF_INET, socket.SOCK_DGRAM)  # not gevent's, where Locust patched it
        _awake.append(idle)
        try:
            idle.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        except OSError:
            pass


def enable(sock: Any) -> bool:
    """Ask the kernel to stamp what this socket receives; False where it cannot."""
    if sys.platform != "linux":
        return False
    keep_awake()
    try:
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
    except OSError:
        return False
    return True


def bracket() -> tuple[int, int]:
    """One instant on both clocks, (monotonic_ns, realtime_ns), from the tightest of up to four readings."""
    best = mono = real = 0
    for attempt in range(4):
        before = monotonic_ns()
        wall = time_ns()
        after = monotonic_ns()
        width = after - before
        if attempt == 0 or width < best:
            best, mono, real = width, before + width // 2, wall
        if best <= _BRACKET_NS:
            break
    return mono, real


def arrival(control: list[tuple[int, int, bytes]]) -> tuple[int, int] | None:
    """(arrival_ns, now_ns), both monotonic, from a read's control messages; None when they hold no stamp."""
    for _, kind, data in control:
        if kind == SO_TIMESTAMPNS:
            mono, real = bracket()
            seconds, nanoseconds = _TIMESPEC.unpack_from(data)
            return min(mono, mono - real + seconds * 1_000_000_000 + nanoseconds), mono
    return None
