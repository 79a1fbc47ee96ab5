"""One request and its answer, as plain data: what goes to the wire and everything that was seen on it.

Stamps are integer nanoseconds of `time.monotonic_ns` and have the meaning that `measure.sample.Sample` gives
them; what was not observed is None, never 0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

from loadgen.measure.sample import ErrorClass

if TYPE_CHECKING:
    from loadgen.replay.wire.api import EventReader

Part = bytes | memoryview


@dataclass(slots=True)
class Request:
    """One request. `parts` are sent one after another by gather writes and never copied or joined by us.

    `events` makes the reader of the answer's events; without one the body is not a stream and is kept whole in
    `Exchange.body`. `expects_usage`: the request asked for usage, and a stream without it is not complete.
    """

    path: str
    parts: Sequence[Part] = ()
    headers: Sequence[tuple[str, str]] = ()
    events: Callable[[], EventReader] | None = None
    expects_usage: bool = True
    method: str = "POST"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Limits of one exchange in wall seconds; None is no limit.

    `first_token_s` and `total_s` count from the first byte sent; `stall_s` from the last token event until the
    next one or the end. For an answer that is no stream only `total_s` counts.
    """

    first_token_s: float | None = 600.0
    stall_s: float | None = 120.0
    total_s: float | None = None


@dataclass(slots=True)
class Usage:
    """Token counts as the server reports them. `cached_tokens` is part of `prompt_tokens` and None when the
    server says nothing about it; `reasoning_tokens` is part of `output_tokens`. `raw` is the server's object."""

    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class Answer:
    """What the model said, kept only when asked for. `tool_calls` have OpenAI's chat shape."""

    text: str = ""
    reasoning: str = ""
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    token_ids: list[int] = field(default_factory=list)


@dataclass(slots=True)
class Exchange:
    """Everything seen of one request. `error` is None only for a complete answer.

    `send_ns` is 0 until the first byte was handed to the kernel (a failed connect leaves it so). `stale`: the
    server had closed the reused connection and answered nothing, so that another attempt is reasonable; it is
    the caller's to make and to record. `client_delay_ns` is time in which the socket was writable and our loop
    was late; `lag_ns` is how long after its arrival the first token was read.
    """

    send_ns: int = 0
    sent_ns: int | None = None
    headers_ns: int | None = None
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    first_text_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int = 0
    clock: Literal["kernel", "loop"] = "loop"
    coalesced: bool = False
    lag_ns: int | None = None
    client_delay_ns: int = 0
    connect_ns: int | None = None
    reused_conn: bool = False
    stale: bool = False
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)  # of the response, names in lower case
    retry_after_s: float | None = None
    error: ErrorClass | None = None
    message: str | None = None
    usage: Usage | None = None
    finish: str | None = None
    chunks: int = 0  # token events
    first_event_tokens: int | None = None
    max_gap_ns: int | None = None
    burst: bool = False
    answer: Answer | None = None
    body: bytes = b""  # of an answer that is no stream

    def fail(self, error: ErrorClass, message: str) -> None:
        """Record why the exchange failed; the first reason stays."""
        if self.error is None:
            self.error, self.message = error, message[:500]
