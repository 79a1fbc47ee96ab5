"""The way there and this client: round trip, clocks, time stamps, spare cores."""

from __future__ import annotations

import os
import socket
import statistics
import time
from collections.abc import Callable, Iterator
from email.utils import parsedate_to_datetime

from loadgen.doctor.ask import connect_s
from loadgen.doctor.finding import Finding, Status
from loadgen.doctor.patient import Patient
from loadgen.errors import LoadgenError
from loadgen.replay.wire import stamps

_CONNECTS = 9
_NAPS = 200
_DATES, _DATE_GAP_S = 5, 0.21
_NAP_S = 0.001
_STAMP_TRIES = 50
_LATE_LIMIT_S = 0.005


def examine(patient: Patient) -> Iterator[Finding]:
    yield _round_trip(patient)
    yield _wall_clocks(patient)
    yield stamping()
    yield timers()


def _round_trip(patient: Patient) -> Finding:
    try:
        times = sorted(connect_s(patient.api) for _ in range(_CONNECTS))
    except OSError as error:
        return Finding(
            check="round trip", status=Status.SKIP, seen=f"no connection ({error.strerror or error})"
        )
    median = statistics.median(times)
    upload = 600_000 / 125e6
    return Finding(
        check="round trip",
        status=Status.OK if times[-1] < 0.05 else Status.NOTE,
        seen=f"connect {times[0] * 1e3:.2f} to {times[-1] * 1e3:.2f} ms, median {median * 1e3:.2f} ms",
        meaning=f"Each TTFT holds about one round trip; a prompt of 600 KB takes {upload * 1e3:.0f} ms more at 1 Gb/s, shown apart as upload.",
        data={"connect_s": times, "tls": patient.api.target.tls},
    )


def _wall_clocks(patient: Patient) -> Finding:
    """Bounds on the server's wall clock from its Date header (whole seconds, and up to a second old)."""
    low, high = -float("inf"), float("inf")
    for _ in range(_DATES):
        before = time.time()
        try:
            _, headers, _ = patient.api.request("GET", "/v1/models")
        except LoadgenError:
            break
        after = time.time()
        try:
            date = parsedate_to_datetime(headers["date"]).timestamp()
        except (KeyError, ValueError, TypeError):
            break
        # The true time there was in [date, date + 2) at some instant of [before, after].
        low, high = max(low, date - after), min(high, date + 2 - before)
        time.sleep(_DATE_GAP_S)
    if low > high or low == -float("inf"):
        return Finding(
            check="wall clocks", status=Status.SKIP, seen="the server sends no Date that can be used"
        )
    seen = f"the server's clock is {low:+.1f} to {high:+.1f} s from ours"
    if low > 1 or high < -1:
        return Finding(
            check="wall clocks",
            status=Status.WARN,
            seen=seen,
            meaning="Samples of the host (probe-host) are joined by wall time and would fall into the wrong rounds.",
            remedy="Run NTP or chrony on both machines.",
            data={"low_s": low, "high_s": high},
        )
    return Finding(check="wall clocks", status=Status.OK, seen=seen, data={"low_s": low, "high_s": high})


def stamping() -> Finding:
    """Whether this kernel stamps what a TCP socket receives, tried over loopback."""
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()) as near,
    ):
        far, _ = listener.accept()
        with far:
            enabled = stamps.enable(near)
            stamp, now = None, 0
            if enabled:
                near.settimeout(2)
                for _ in range(_STAMP_TRIES):  # a kernel begins to stamp a moment after it was asked
                    far.sendall(b"x")
                    arrival = stamps.arrival(near.recvmsg(16, stamps.CONTROL_BYTES)[1])
                    if arrival is not None:
                        stamp, now = arrival
                        break
                    time.sleep(_NAP_S)
    if stamp is None:
        return Finding(
            check="kernel stamps",
            status=Status.WARN,
            seen="this kernel does not stamp what arrives",
            meaning="First tokens are stamped by the event loop: a busy client reports its own delay as TTFT.",
            remedy="Run the client on Linux (not gVisor); keep the number of streams a process low.",
        )
    return Finding(
        check="kernel stamps",
        status=Status.OK,
        seen=f"arrivals are stamped by the kernel, {(now - stamp) / 1e3:.0f} µs before this program saw one",
        data={"lag_s": (now - stamp) / 1e9},
    )


def timers(nap: Callable[[float], None] = time.sleep) -> Finding:
    """How late short sleeps end: what a schedule on this machine can keep to."""
    late = []
    for _ in range(_NAPS):
        start = time.monotonic()
        nap(_NAP_S)
        late.append(time.monotonic() - start - _NAP_S)
    late.sort()
    p99 = late[int(0.99 * len(late)) - 1]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    data = {"p99_s": p99, "max_s": late[-1], "cores": cores}
    seen = (
        f"sleeps of 1 ms end {p99 * 1e3:.2f} ms late at p99, {late[-1] * 1e3:.2f} ms at most; {cores} cores"
    )
    if p99 > _LATE_LIMIT_S:
        return Finding(
            check="client timers",
            status=Status.WARN,
            seen=seen,
            meaning="This machine is busy: turns would be sent late, and the run may be stamped invalid.",
            remedy="Take other load off this machine, or use another one.",
            data=data,
        )
    return Finding(check="client timers", status=Status.OK, seen=seen, data=data)
