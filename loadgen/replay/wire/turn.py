"""State of one exchange under way: what is sent, what was seen, and when patience ends."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic_ns
from typing import Any

from gevent.hub import Waiter

from loadgen.measure.sample import ErrorClass
from loadgen.replay.wire.addresses import Address
from loadgen.replay.wire.channel import Upload
from loadgen.replay.wire.decoder import ResponseDecoder
from loadgen.replay.wire.exchange import Exchange, Request, Timeouts
from loadgen.replay.wire.lateness import Lateness

NEVER = 1 << 62  # ns


class Turn:
    """What a connection knows of the exchange it carries."""

    def __init__(self, request: Request, timeouts: Timeouts, head: bytes, loop: Any) -> None:
        self.exchange = Exchange()
        events = request.events() if request.events is not None else None
        self.decoder = ResponseDecoder(self.exchange, events, expects_usage=request.expects_usage)
        self.upload = Upload((head, *request.parts))
        self.waiter: Any = Waiter()
        self.over = False
        self.crash: BaseException | None = None
        self.addresses: list[Address] = []
        self.connect_began_ns = 0
        self.connect_error: OSError | None = None
        self.sending = False
        self.lateness = Lateness(loop)
        self._loop = loop
        self._timer: Any = None
        self._timeouts = timeouts
        self._streams = events is not None

    def deadline(self, connect_timeout_ns: int) -> tuple[int, ErrorClass, str]:
        """The nearest deadline: monotonic ns, and what it means to pass it."""
        exchange, limits = self.exchange, self._timeouts
        if exchange.send_ns == 0:
            at = self.connect_began_ns + connect_timeout_ns
            return at, ErrorClass.CONNECT, f"no connection within {connect_timeout_ns / 1e9:g} s"
        if exchange.first_token_ns is None:
            limit, since, error = limits.first_token_s, exchange.send_ns, ErrorClass.TIMEOUT_FIRST_TOKEN
            seen = "no answer at all" if exchange.headers_ns is None else "headers, but no token"
            message = f"{seen} within {limit:g} s" if limit is not None else ""
            if not self._streams:
                limit = None
        else:
            limit, since, error = limits.stall_s, exchange.last_token_ns or 0, ErrorClass.TIMEOUT_STALL
            message = f"nothing new for {limit:g} s" if limit is not None else ""
        nearest = (since + int(limit * 1e9) if limit is not None else NEVER, error, message)
        if limits.total_s is not None:
            at = exchange.send_ns + int(limits.total_s * 1e9)
            if at < nearest[0]:
                return at, error, f"not complete within {limits.total_s:g} s"
        return nearest

    def set_timer(self, deadline_ns: int, callback: Callable[[], None]) -> None:
        """Call back at the deadline instead of at an earlier one."""
        self._stop_timer()
        if deadline_ns < NEVER:
            self._timer = self._loop.timer(max(0.0, (deadline_ns - monotonic_ns()) / 1e9))
            self._timer.start(callback, update=True)

    def wake(self) -> None:
        """End the wait after the callbacks that are already due, so that their reads are not held up."""
        if not self.over:
            self.over = True
            self._loop.run_callback(self.waiter.switch, None)

    def release(self) -> None:
        """Let go of what the loop holds."""
        self._stop_timer()
        self.lateness.stop()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.stop()
            self._timer.close()
            self._timer = None
