"""Lets turns begin and end a few at a time, with the sockets read in between.

What a turn's end and the next one's beginning take (sample, histograms, the next body, a connection) is half a
millisecond, and turns of one engine end together: two hundred of them are a tenth of a second. The first tokens that
arrive meanwhile would be read late, and those whose second token comes before then together with it, which leaves an
upper bound of their TTFT only.
"""

from __future__ import annotations

from collections import deque
from time import monotonic_ns

import gevent

SLICE_NS = 2_000_000  # of that work between two looks at the sockets


class Turnstile:
    """One a hub. The first to enter after a look at the sockets opens a slice; who comes when it is over waits in line."""

    def __init__(self) -> None:
        hub = gevent.get_hub()
        self._hub = hub
        # Of the lowest priority: what is readable in the same round of the loop is read before.
        self._timer = hub.loop.timer(0, priority=hub.loop.MINPRI)
        self._line: deque[gevent.Greenlet] = deque()
        self._open = False
        self._until_ns = 0
        self._left_ns = 0  # when the last slice ended with somebody left in line

    def enter(self) -> None:
        """Return when it is this greenlet's turn; whoever is killed while it waits has left the line."""
        if not self._open:
            self._begin()
            return
        if not self._line and monotonic_ns() < self._until_ns:
            return
        me = gevent.getcurrent()
        self._line.append(me)
        try:
            self._hub.switch()
        except BaseException:
            if me in self._line:
                self._line.remove(me)
            raise

    def _begin(self, slice_ns: int = SLICE_NS) -> None:
        self._open = True
        self._until_ns = monotonic_ns() + slice_ns
        self._timer.start(self._next)

    def _next(self) -> None:
        """In the hub, after the sockets were looked at."""
        self._open = False
        if not self._line:
            self._left_ns = 0  # whoever was left has been killed
            return
        # Never less than a fifth of the time: a core that its streams fill would not get to send at all.
        self._begin(max(SLICE_NS, (monotonic_ns() - self._left_ns) // 4) if self._left_ns else SLICE_NS)
        while self._line:
            self._line.popleft().switch()
            if (now := monotonic_ns()) >= self._until_ns:
                self._left_ns = now
                return
        self._left_ns = 0
