"""What the events of one answer mean: the first token, the last, and whether the answer is complete. Sans IO.

The same recorder serves our own wire and the openai SDK, so that both give an `Exchange` by the same rules.
"""

from __future__ import annotations

from typing import Any

import orjson

from loadgen.measure.sample import ErrorClass
from loadgen.replay.wire.api import TEXT, BadEventError, EventReader
from loadgen.replay.wire.exchange import Exchange


class StreamRecorder:
    """Fills `exchange` from an answer's events. A read is a number: events with the same one arrived together."""

    __slots__ = ("_events", "_exchange", "_first_read", "_last_read", "done")

    def __init__(self, exchange: Exchange, events: EventReader) -> None:
        self._exchange = exchange
        self._events = events
        self._first_read = self._last_read = 0  # the reads of the first and of the last token
        self.done = False  # `[DONE]` was seen

    def payload(self, payload: bytes, stamp_ns: int, now_ns: int, read: int) -> None:
        """One event's data as it came. Raises BadEventError."""
        if payload == b"[DONE]":
            self.done = True
            return
        try:
            event = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            if not payload.strip():
                return
            raise BadEventError(f"an event is not JSON: {error}") from None
        if type(event) is not dict:
            raise BadEventError("an event is not a JSON object")
        self.event(event, stamp_ns, now_ns, read)

    def event(self, event: dict[str, Any], stamp_ns: int, now_ns: int, read: int) -> None:
        """One decoded event that arrived at `stamp_ns` and was read at `now_ns`. Raises BadEventError."""
        exchange, events = self._exchange, self._events
        kind = events.read(event)
        if not kind:
            if events.failure is not None:
                exchange.fail(ErrorClass.STREAM_ERROR, events.failure)
            return
        exchange.chunks += 1
        if exchange.first_token_ns is None:
            exchange.first_token_ns = stamp_ns
            exchange.first_event_tokens = events.event_tokens
            exchange.lag_ns = now_ns - stamp_ns
            self._first_read = read
        elif read == self._first_read:
            exchange.coalesced = True
        else:
            assert exchange.last_token_ns is not None
            gap = stamp_ns - exchange.last_token_ns
            if exchange.max_gap_ns is None or gap > exchange.max_gap_ns:
                exchange.max_gap_ns = gap
        if kind == TEXT and exchange.first_text_ns is None:
            exchange.first_text_ns = stamp_ns
        exchange.last_token_ns = stamp_ns
        self._last_read = read

    def judge(self, *, ended: bool, expects_usage: bool) -> None:
        """The stream is over: record what it lacks. `ended`: its end marker was seen, where the events have none."""
        exchange, events = self._exchange, self._events
        if exchange.error is not None:
            return
        missing = None
        if events.done_marker and not ended:
            missing = "[DONE]"
        elif not events.done_marker and not events.ended:
            missing = "its final event"
        elif events.finish is None:
            missing = "a finish reason"
        elif expects_usage and (events.usage is None or events.usage.output_tokens is None):
            missing = "the usage that was asked for"
        if missing:
            seen = f"after {exchange.chunks} token events"
            exchange.fail(ErrorClass.TRUNCATED, f"the stream ended without {missing}, {seen}")
        elif exchange.first_token_ns is None:
            exchange.fail(ErrorClass.EMPTY_OUTPUT, "the answer holds no token")

    def settle(self) -> None:
        """Move to the exchange what the events hold, whether the stream ended well or not."""
        exchange, events = self._exchange, self._events
        exchange.usage, exchange.finish, exchange.answer = events.usage, events.finish, events.answer
        output = (events.usage.output_tokens or 0) if events.usage else 0
        one_read = exchange.first_token_ns is not None and self._last_read == self._first_read
        exchange.burst = one_read and (exchange.chunks > 1 or output > 1)
