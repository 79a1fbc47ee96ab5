"""Room for the files and connections that a process will open."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource

SERVER = 4096  # connections that a server of ours should take without a pause: 32 KB of table


def widen(count: int) -> None:
    """Make this process's table of descriptors large enough for `count` of them now, and raise the soft limit to it where it may.

    Linux doubles the table when it is full, and a process with threads then waits until every CPU has passed through the
    scheduler (`expand_fdtable`, fs/file.c): measured 5 to 20 ms in the middle of an `open` or `accept`, with every stream
    waiting. To be called before what must not wait; it fails silently, since nothing depends on it but time.
    """
    with contextlib.suppress(OSError, ValueError):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != resource.RLIM_INFINITY and soft < count:
            soft = count if hard == resource.RLIM_INFINITY else min(count, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
        highest = count if soft == resource.RLIM_INFINITY else min(count, soft)
        low = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
        try:
            os.close(fcntl.fcntl(low, fcntl.F_DUPFD_CLOEXEC, highest - 1))
        finally:
            os.close(low)
