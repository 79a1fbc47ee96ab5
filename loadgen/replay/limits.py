"""Whether this process may open as many connections as a run needs; asked before the first request."""

from __future__ import annotations

import contextlib
import resource

from loadgen.errors import InputError

# Open files of a playing process beside its streams. Counted: 20, which are Locust's sockets, samples and journal; a few
# more while it starts, and a stream's successor may be open before its own end is noticed.
RESERVE = 64


def streams_of(schedule: str, *, width: int | None, users: int | None, in_flight: int | None) -> int:
    """Streams that may be under way at once: the cap on turns in flight, else the sweep's width, else live sessions."""
    return in_flight or (width if schedule == "sweep" else users) or 1


def require_files(streams: int, processes: int | None) -> None:
    """Raise the soft limit of open files, which the processes that play inherit, to what `streams` over them take.

    Raises InputError when the hard one is below that.
    """
    needed = -(-streams // (processes or 1)) + RESERVE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard == resource.RLIM_INFINITY or hard >= needed:
        # macOS refuses beyond kern.maxfilesperproc, whatever the hard limit says.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            return
        hard = soft
    enough = -(-streams // (hard - RESERVE)) if hard > RESERVE else None
    spread = f" or spread them (--processes {enough})" if enough else ""
    raise InputError(
        f"{streams} streams over {processes or 1} process{'es' if (processes or 1) > 1 else ''} need {needed} open files in each, "
        f"and the limit is {hard}; raise it (`ulimit -n {needed}`, `ulimits` of a container){spread}"
    )
