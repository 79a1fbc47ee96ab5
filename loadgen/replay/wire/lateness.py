"""How long a socket could have been written to while our loop did other things: the client's share of an upload."""

from __future__ import annotations

import time
from time import monotonic_ns, thread_time_ns
from typing import Any

_BLOCKED_NS = 200_000  # a poll that took longer than this waited for something


class Lateness:
    """Watches one upload from pause to pause.

    Nobody stamps the moment at which a socket becomes writable. If the loop's poll had to wait, it was the end of the
    poll. If the poll returned at once, it lies behind the poll before, and all since then is counted: an upper bound,
    by at most one round of the loop. A poll whose start was not seen (the pause fell between the loop's preparations
    and the poll) is told from work by the CPU time of our thread.
    """

    def __init__(self, loop: Any) -> None:
        self._loop = loop
        self._watcher: Any = None
        self._paused_ns = self._paused_cpu_ns = 0
        self._poll_ns = self._poll_before_ns = 0  # starts of the last two polls since the pause

    def pause(self) -> None:
        """Sending stops here until the socket is writable and the loop comes to it."""
        self._paused_ns, self._paused_cpu_ns = monotonic_ns(), thread_time_ns()
        self._poll_ns = self._poll_before_ns = 0
        if self._watcher is None:
            self._watcher = self._loop.prepare(ref=False)
            self._watcher.start(self._before_poll)

    def resume(self) -> int:
        """Sending goes on: nanoseconds for which it could have gone on earlier."""
        now = monotonic_ns()
        since_poll = max(0, int((time.time() - self._loop.now()) * 1e9))
        if not self._poll_ns:
            return min(now - self._paused_ns, max(since_poll, thread_time_ns() - self._paused_cpu_ns))
        if now - since_poll - self._poll_ns > _BLOCKED_NS:
            return since_poll
        return now - (self._poll_before_ns or self._paused_ns)

    def stop(self) -> None:
        """The upload is over."""
        if self._watcher is not None:
            self._watcher.stop()
            self._watcher.close()
            self._watcher = None

    def _before_poll(self) -> None:
        self._poll_before_ns, self._poll_ns = self._poll_ns, monotonic_ns()
