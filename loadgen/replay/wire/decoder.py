"""One HTTP response, sans IO: bytes with their stamps go in, the `Exchange` fills up.

httptools (llhttp) parses HTTP: a chunk costs it 0.12 us, a quarter of the same in Python. A stream is complete only
with its last HTTP chunk, the API's end marker, a finish reason, a token and the usage that was asked for.
"""

from __future__ import annotations

from typing import Any

import httptools

from loadgen.measure.sample import ErrorClass
from loadgen.replay.wire.api import BadEventError, EventReader
from loadgen.replay.wire.exchange import Exchange
from loadgen.replay.wire.failures import classify, retry_after_s
from loadgen.replay.wire.sse import EventSplitter, EventTooLongError
from loadgen.replay.wire.stream import StreamRecorder

MAX_HEADERS = 256
MAX_ERROR_BYTES = 64 << 10
MAX_BODY_BYTES = 256 << 20


class ResponseDecoder:
    """Fills `exchange` from the bytes of one response. `events` reads a stream; None keeps the body whole.

    `feed` returns True and `eof` and `interrupt` mean that nothing more is to come: the response is complete, or it
    failed for good. `settle` is the last call.
    """

    __slots__ = (
        "_body",
        "_body_size",
        "_expects_usage",
        "_framed",
        "_keep_alive",
        "_now",
        "_parser",
        "_read",
        "_recorder",
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
        self._recorder = StreamRecorder(exchange, events) if events is not None else None
        self._expects_usage = expects_usage
        self._parser: Any = httptools.HttpResponseParser(self)
        self._splitter = EventSplitter()
        self._streaming = False
        self._keep_alive = False
        self._framed = False  # by length or in chunks, not "until the connection closes"
        self._body: list[bytes] = []
        self._body_size = 0
        self._stamp = self._now = self._read = 0

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
            self.extra_bytes = True
            if not self.complete:
                self.exchange.fail(ErrorClass.MALFORMED, f"not valid HTTP: {error}")
                return True
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

    def settle(self) -> None:
        """Complete the exchange with what the events hold, whether the stream ended well or not."""
        self._parser = None  # it holds our callbacks: the cycle would wait for the garbage collector
        if self._recorder is not None:
            self._recorder.settle()

    @property
    def reusable(self) -> bool:
        """Whether the connection may carry another request."""
        return self.complete and self._keep_alive and not self.extra_bytes

    # llhttp's callbacks; after `extra_bytes` they belong to an answer that nobody asked for

    def on_message_begin(self) -> None:
        if self.complete:
            self.extra_bytes = True

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.extra_bytes or len(self.exchange.headers) >= MAX_HEADERS:
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
        chunked = "chunked" in headers.get("transfer-encoding", "").lower()
        self._framed = chunked or "content-length" in headers
        if "retry-after" in headers:
            exchange.retry_after_s = retry_after_s(headers["retry-after"])
        encoding = headers.get("content-encoding", "").strip().lower()
        if encoding not in ("", "identity"):
            self._streaming = True  # nothing of the body can be read
            words = f"the server sent content-encoding {encoding} although identity was asked for"
            exchange.fail(ErrorClass.MALFORMED, words)
        elif self._recorder is not None and status == 200:
            content_type = headers.get("content-type", "text/event-stream").lower()
            self._streaming = not content_type.startswith(("application/json", "text/plain", "text/html"))

    def on_body(self, body: bytes) -> None:
        exchange, recorder = self.exchange, self._recorder
        if self.extra_bytes:
            return
        if exchange.first_byte_ns is None:
            exchange.first_byte_ns = self._stamp
        if not self._streaming or recorder is None:
            self._keep(body)
            return
        if exchange.error is not None:
            return
        try:
            for payload in self._splitter.feed(body):
                recorder.payload(payload, self._stamp, self._now, self._read)
        except (BadEventError, EventTooLongError) as error:
            exchange.fail(ErrorClass.MALFORMED, str(error))

    def on_message_complete(self) -> None:
        if self.complete or self.exchange.status is None:  # an answer too many; the end of a 1xx
            return
        self.complete = True
        self._keep_alive = self._framed and bool(self._parser.should_keep_alive())
        if not self._streaming or self._recorder is None:
            self._judge_body()
        else:
            if self._splitter.pending:
                self.exchange.fail(ErrorClass.TRUNCATED, "the stream ended inside an event")
            self._recorder.judge(ended=self._recorder.done, expects_usage=self._expects_usage)

    # answers that are no stream

    def _keep(self, body: bytes) -> None:
        good = self.exchange.status == 200
        self._body_size += len(body)
        if self._body_size <= (MAX_BODY_BYTES if good else MAX_ERROR_BYTES):
            self._body.append(body)
        elif good:
            self.exchange.fail(ErrorClass.MALFORMED, f"the answer is larger than {MAX_BODY_BYTES} bytes")

    def _judge_body(self) -> None:
        exchange = self.exchange
        exchange.body = b"".join(self._body)
        assert exchange.status is not None
        if not 200 <= exchange.status < 300 or (self._recorder is not None and exchange.status != 200):
            exchange.fail(*classify(exchange.status, exchange.body))
        elif self._recorder is not None:
            kind = exchange.headers.get("content-type", "no stream")
            words = classify(200, exchange.body)[1].removesuffix(" (expected 200)")
            exchange.fail(ErrorClass.MALFORMED, f"asked for a stream and got {kind}; {words}")
