"""The sample: the measurements of one turn, and the contract between replay and report.

One line of `samples-*.jsonl` is one `Sample`. Nothing here knows Locust, HTTP or HTML. Stamps are integer
nanoseconds of one worker's monotonic clock (`time.monotonic_ns`, wall seconds, never scaled); `run.json`
holds for each worker a pair of monotonic and wall time, so that stamps of several workers can be put on
one axis. What was not observed is null, never 0.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

import msgspec

VERSION = 1


class TurnClass(StrEnum):
    """Class of a turn, from the trace and never from what the server then did."""

    FIRST = "first"
    REUSE = "reuse"
    REBUILT = "rebuilt"
    RETRY = "retry"


class ErrorClass(StrEnum):
    """Why a turn failed. Every failed turn has exactly one."""

    CONNECT = "connect"
    RESET = "reset"
    HTTP_4XX = "http_4xx"
    HTTP_5XX = "http_5xx"
    OVERLOADED = "overloaded"  # 429 and 503
    TIMEOUT_FIRST_TOKEN = "timeout_first_token"
    TIMEOUT_STALL = "timeout_stall"
    TRUNCATED = "truncated"
    MALFORMED = "malformed"
    CONTEXT_OVERFLOW = "context_overflow"
    EMPTY_OUTPUT = "empty_output"
    STREAM_ERROR = "stream_error"
    CANCELLED = "cancelled"


class Tiers(msgspec.Struct, frozen=True):
    """Where a prompt's KV came from, in tokens; the four add up to the prompt."""

    compute: int = 0
    hbm: int = 0
    external: int = 0
    unknown: int = 0


class Sample(msgspec.Struct, kw_only=True):
    """One turn. Field order is the order in the file."""

    v: int = VERSION
    run: str
    arm: str
    rep: int
    session: str
    turn: int
    attempt: int = 1
    agent: str = "main"
    klass: TurnClass = msgspec.field(name="class")
    worker: str
    endpoint: str
    request_id: str
    intended_ns: int
    send_ns: int
    sent_ns: int | None = None
    headers_ns: int | None = None
    first_byte_ns: int | None = None
    first_token_ns: int | None = None
    first_text_ns: int | None = None
    last_token_ns: int | None = None
    end_ns: int
    clock: Literal["kernel", "loop"]
    coalesced: bool = False  # first token read together with a later event: its TTFT is an upper bound
    lag_ns: int | None = None  # user time minus kernel stamp at the first token
    client_delay_ns: int = 0  # the turn could have been sent and our loop was late
    cap_wait_ns: int = 0  # the turn waited this long for one of the turns in flight to end (--in-flight)
    connect_ns: int | None = None  # duration of the connect, apart from TTFT; null on a reused connection
    reused_conn: bool = False
    prompt_tokens: int | None = None
    target_tokens: int | None = None
    expected_reuse: int | None = None
    cached_tokens: int | None = None
    output_tokens: int | None = None
    requested_tokens: int | None = None
    first_event_tokens: int | None = None
    chunks: int = 0
    max_gap_ns: int | None = None  # longest gap between two chunks after the first token
    burst: bool = False  # all token events came in one read: no TPOT can be had
    finish: str | None = None
    error: ErrorClass | None = None
    message: str | None = None  # the error in words
    tiers: Tiers | None = None
    tier_source: Literal["response", "log", "isolated"] | None = None
