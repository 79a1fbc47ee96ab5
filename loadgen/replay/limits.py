"""Whether a process that plays may open as many files as a run needs; asked before the first request."""

from __future__ import annotations

import contextlib
import resource
import sys

from loadgen.errors import InputError
from loadgen.replay.job import Job

# Open files of a playing process beside its streams. Counted: 20, which are Locust's sockets, samples and journal; a few
# more while it starts, and a stream's successor may be open before its own end is noticed.
RESERVE = 64
# Before Python 3.13 a memory map keeps a descriptor of its file for as long as it lives.
MAPS_KEEP_FILES = sys.version_info < (3, 13)


def streams_of(schedule: str, *, width: int | None, users: int | None, in_flight: int | None) -> int:
    """Streams that may be under way at once: the cap on turns in flight, else the sweep's width, else live sessions."""
    return in_flight or (width if schedule == "sweep" else users) or 1


def streams_in(job: Job, users: int | None) -> int:
    """The same of a prepared run."""
    plan = job.schedule
    return streams_of(str(plan["kind"]), width=plan.get("width"), users=users, in_flight=job.in_flight)


def open_files(streams: int, texts: int, processes: int | None = None) -> int:
    """Files that one of `processes` may have open: its streams, and the texts, which any of them may map all of."""
    return -(-streams // (processes or 1)) + (texts if MAPS_KEEP_FILES else 0) + RESERVE


def require_files(streams: int, processes: int | None, texts: int = 0) -> None:
    """Raise the soft limit of open files, which the processes that play inherit, to what `streams` over them and `texts`
    take.

    Raises InputError when the hard one is below that.
    """
    needed = open_files(streams, texts, processes)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return
    if hard == resource.RLIM_INFINITY or hard >= needed:
        # macOS refuses beyond kern.maxfilesperproc, whatever the hard limit says.
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
            return
        hard = soft
    room = hard - open_files(0, texts)
    enough = -(-streams // room) if room > 0 else None
    spread = f" or spread them (--processes {enough})" if enough else ""
    mapped = f" and {texts} texts" if texts and MAPS_KEEP_FILES else ""
    raise InputError(
        f"{streams} streams over {processes or 1} process{'es' if (processes or 1) > 1 else ''}{mapped} need {needed} open files in each, "
        f"and the limit is {hard}; raise it (`ulimit -n {needed}`, `ulimits` of a container){spread}"
    )
