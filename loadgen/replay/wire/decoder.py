"""One HTTP response, sans IO: bytes with their stamps go in, the `Exchange` fills up.

httptools (llhttp) parses HTTP; a chunk costs it 0.12 us, a quarter of the same in Python. JSON of an event costs
0.6 us. A stream is complete only with its last HTTP chunk, the API's end marker, a finish reason, a token and
the usage that was asked for.
"""

from __future__ import annotations

from typing import Any

import httptools
import orjson

from loadgen.measure.sample import ErrorClass
from loadgen.replay.wire.api import TEXT, BadEventError, EventReader
from loadgen.replay.wire.exchange import Exchange
from loadgen.replay.wire.failures import classify, retry_after_s
from loadgen.replay.wire.sse import EventSplitter, EventTooLongError

MAX_ERROR_BYTES = 64 << 10
MAX_BODY_BYTES = 256 << 20


class ResponseDecoder:
    """Fills `exchange` from the bytes of one response. `events` reads a stream; None keeps the body whole.

    `feed` and `eof` return True when nothing more is to come: the response is complete, or it failed for good.
    """

    __slots__ = (
        "_body",
        "_body_size",
        "_done",
        "_events",
        "_expects_usage",
        "_first_read",
        "_framed",
        "_keep_alive",
        "_last_read",
        "_now",
        "_parser",
        "_read",
        "_splitter",
        "_stamp",
        "_streaming",
        "complete",
        "exchange",
        "extra_bytes",
        "started",
    )

    def __init__(self, exchange: Exchange, events: EventReader | None, *, expects_usage: bool = True) -> None:
        self.exchange = exchange
        self.started = False  # a byte of the response was seen
        self.complete = False  # the HTTP message ended properly
        self.extra_bytes = False  # bytes after the end: the connection must not be used again
        self._events = events
        self._expects_usage = expects_usage
        self._parser: Any = httptools.HttpResponseParser(self)
        self._splitter = EventSplitter()
        self._streaming = False
        self._keep_alive = False
        self._framed = False  # length or chunks, not "until the connection closes"
        self._done = False  # `[DONE]` was seen
        self._body: list[bytes] = []
        self._body_size = 0
        self._stamp = self._now = 0
        self._read = 0
        self._first_read = self._last_read = (
            0  # numbers of the reads that brought the first and the last token
        )

    # bytes in

    def feed(self, data: bytes, stamp_ns: int, now_ns: int) -> bool:
        """Take in what one read returned, never nothing: `stamp_ns` when it arrived, `now_ns` when it was read."""
        self._stamp, self._now = stamp_ns, now_ns
        self._read += 1
        self.started = True
        if self.complete:
            self.extra_bytes = True
            return True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            if not self.complete:
                self.exchange.fail(ErrorClass.MALFORMED, f"not valid HTTP: {error}")
            self.extra_bytes = True
        return self.complete or (self._streaming and self.exchange.error is not None)

    def eof(self) -> None:
        """The server closed its side."""
        if not self.started:
            self.interrupt(ErrorClass.RESET, "the server closed the connection without an answer")
        elif self._framed or self.exchange.status is None:
            self.interrupt(ErrorClass.TRUNCATED, "the connection closed in mid-answer")
        elif not self.complete:
            self.on_message_complete()

    def interrupt(self, error: ErrorClass, message: str) -> None:
        """The response ends here for a reason outside of it. What a status other than 200 says goes first."""
        exchange = self.exchange
        if self.complete or exchange.error is not None:
            return
        if exchange.status is not None and exchange.status != 200:
            self._judge_body()
        seen = f", after {exchange.chunks} token events" if exchange.chunks else ""
        exchange.fail(error, message + seen)

    # llhttp's callbacks

    def on_message_begin(self) -> None:
        if self.complete:
            self.extra_bytes = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.extra_bytes:
            return
        self.exchange.headers[name.decode("latin-1").lower()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        exchange = self.exchange
        if self.extra_bytes:
            return
        status = self._parser.get_status_code()
        if status < 200:  # 100 Continue, 103 Early Hints
            exchange.headers.clear()
            return
        exchange.status = status
        exchange.headers_ns = self._stamp
        headers = exchange.headers
        self._framed = (
            "content-length" in headers or "chunked" in headers.get("transfer-encoding", "").lower()
        )
        if "retry-after" in headers:
            exchange.retry_after_s = retry_after_s(headers["retry-after"])
        encoding = headers.get("content-encoding", "identity").strip().lower()
        if encoding not in ("", "identity"):
            exchange.fail(
                ErrorClass.MALFORMED,
                f"the server sent content-encoding {encoding} although identity was asked for",
            )
            self._streaming = True
        elif self._events is not None and status == 200:
            content_type = headers.get("content-type", "text/event-stream").lower()
            self._streaming = not content_type.startswith(("application/json", "text/plain", "text/html"))

    def on_body(self, body: bytes) -> None:
        exchange = self.exchange
        if self.extra_bytes:
            return
        if exchange.first_byte_ns is None:
            exchange.first_byte_ns = self._stamp
        if not self._streaming:
            self._keep(body)
            return
        if exchange.error is not None:
            return
        try:
            for payload in self._splitter.feed(body):
                self._event(payload)
        except (BadEventError, EventTooLongError) as error:
            exchange.fail(ErrorClass.MALFORMED, str(error))

    def on_message_complete(self) -> None:
        if self.complete or self.exchange.status is None:  # an answer too many; the end of a 1xx
            return
        self.complete = True
        self._keep_alive = self._framed and bool(self._parser.should_keep_alive())
        if self._streaming:
            self._judge_stream()
        else:
            self._judge_body()

    def settle(self) -> None:
        """Move to the exchange what the events hold, whether the stream ended well or not. The last call."""
        exchange, events = self.exchange, self._events
        self._parser = (
            None  # it holds our callbacks: without this each response waits for the garbage collector
        )
        if events is None:
            return
        exchange.usage, exchange.finish, exchange.answer = events.usage, events.finish, events.answer
        output = (events.usage.output_tokens or 0) if events.usage else 0
        one_read = exchange.first_token_ns is not None and self._last_read == self._first_read
        exchange.burst = one_read and (exchange.chunks > 1 or output > 1)

    # what it means

    def _event(self, payload: bytes) -> None:
        exchange, events = self.exchange, self._events
        assert events is not None
        if payload == b"[DONE]":
            self._done = True
            return
        try:
            event = orjson.loads(payload)
        except orjson.JSONDecodeError as error:
            if not payload.strip():
                return
            raise BadEventError(f"an event is not JSON: {error}") from None
        if type(event) is not dict:
            raise BadEventError("an event is not a JSON object")
        kind = events.read(event)
        if kind:
            stamp = self._stamp
            exchange.chunks += 1
            if exchange.first_token_ns is None:
                exchange.first_token_ns = stamp
                exchange.first_event_tokens = events.event_tokens
                exchange.lag_ns = self._now - stamp
                self._first_read = self._read
            elif self._read == self._first_read:
                exchange.coalesced = True
            else:
                assert exchange.last_token_ns is not None
                gap = stamp - exchange.last_token_ns
                if exchange.max_gap_ns is None or gap > exchange.max_gap_ns:
                    exchange.max_gap_ns = gap
            if kind == TEXT and exchange.first_text_ns is None:
                exchange.first_text_ns = stamp
            exchange.last_token_ns = stamp
            self._last_read = self._read
        elif events.failure is not None:
            exchange.fail(ErrorClass.STREAM_ERROR, events.failure)

    def _keep(self, body: bytes) -> None:
        self._body_size += len(body)
        limit = MAX_BODY_BYTES if self.exchange.status == 200 else MAX_ERROR_BYTES
        if self._body_size <= limit:
            self._body.append(body)
        elif self.exchange.status == 200:
            self.exchange.fail(ErrorClass.MALFORMED, f"the answer is larger than {limit} bytes")

    def _judge_body(self) -> None:
        exchange = self.exchange
        exchange.body = b"".join(self._body)
        assert exchange.status is not None
        if not 200 <= exchange.status < (201 if self._events else 300):
            exchange.fail(*classify(exchange.status, exchange.body))
        elif self._events is not None:
            kind = exchange.headers.get("content-type", "")
            words = classify(200, exchange.body)[1].removesuffix(" (expected 200)")
            exchange.fail(ErrorClass.MALFORMED, f"asked for a stream and got {kind}; {words}")

    def _judge_stream(self) -> None:
        exchange, events = self.exchange, self._events
        if exchange.error is not None or events is None:
            return
        missing = None
        if self._splitter.pending:
            missing = "the end of its last event"
        elif not (self._done if events.done_marker else events.ended):
            missing = "[DONE]" if events.done_marker else "its final event"
        elif events.finish is None:
            missing = "a finish reason"
        elif self._expects_usage and (events.usage is None or events.usage.output_tokens is None):
            missing = "the usage that was asked for"
        if missing:
            exchange.fail(
                ErrorClass.TRUNCATED,
                f"the stream ended without {missing}, after {exchange.chunks} token events",
            )
        elif exchange.first_token_ns is None:
            exchange.fail(ErrorClass.EMPTY_OUTPUT, "the answer holds no token")

    @property
    def reusable(self) -> bool:
        """Whether the connection may carry another request."""
        return self.complete and self._keep_alive and not self.extra_bytes
