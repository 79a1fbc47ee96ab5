"""The list of calls beside the trace: one line for everything that passed, whether or not it became a turn.

It holds no content: no body, no query, no header but the client's name, identifiers only as pseudonyms.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from loadgen.record.exchange import Ending, Exchange
from loadgen.record.headers import first
from loadgen.record.identity import retry_count
from loadgen.record.reading import Call
from loadgen.record.redact import Redactor

_LONGEST_ERROR = 500  # characters


class Line(msgspec.Struct, kw_only=True, omit_defaults=True):
    """Seconds are since the start of the recording (`t_s`) or since the request came (all others)."""

    n: int
    t_s: float
    method: str
    path: str
    client: str | None = None  # first word of the user agent
    api: str | None = None
    model: str | None = None
    status: int | None = None
    ending: Ending
    rule: str | None = None  # which rule of identity matched
    conversation: str | None = None  # pseudonym
    session: str | None = None
    turn: int | None = None
    attempt: int | None = None
    relation: str | None = None
    tags: list[str] = []
    nonce: str | None = None  # Claude Code's, as it came
    bytes_up: int = 0
    bytes_down: int = 0
    sent_s: float | None = None
    headers_s: float | None = None
    first_byte_s: float | None = None
    first_token_s: float | None = None
    first_text_s: float | None = None
    end_s: float
    added_s: float = 0.0  # ours: before the request went up, and from the first read to its write
    max_hold_s: float = (
        0.0  # longest from a read to the end of its write: ours, or a client that reads slowly
    )
    problems: list[str] = []


def line_of(exchange: Exchange, call: Call, redactor: Redactor, start_ns: int, *, content: bool) -> Line:
    """What an exchange tells by itself; session and turn are filled in when it becomes one. `start_ns`: of the recording.
    Without `content` the words of errors are left out."""
    agent = (first(exchange.request_headers, "user-agent") or "").split()
    since = exchange.received_ns
    line = Line(
        n=exchange.number,
        t_s=seconds(start_ns, since) or 0.0,
        method=exchange.method,
        path=redactor.text(call.path),
        client=agent[0][:80] if agent else None,
        api=call.api.name if call.api is not None else None,
        model=call.prompt.model if call.prompt is not None else None,
        status=exchange.status,
        ending=exchange.ending,
        bytes_up=len(exchange.request_body) + exchange.request_lost,
        bytes_down=len(exchange.response_body) + exchange.response_lost,
        sent_s=seconds(since, exchange.sent_ns),
        headers_s=seconds(since, exchange.headers_ns),
        first_byte_s=seconds(since, call.first_byte_ns),
        end_s=(exchange.end_ns - since) / 1e9,
        added_s=exchange.added_ns / 1e9,
        max_hold_s=exchange.max_hold_ns / 1e9,
        problems=list(call.problems),
    )
    if (count := retry_count(exchange.request_headers)) > 0:
        line.tags.append(f"retry:{count}")
    errors = (exchange.error, call.reply.error if call.reply is not None else None)
    line.problems += [redactor.text(text)[:_LONGEST_ERROR] for text in errors if text and content]
    return line


def seconds(start_ns: int, at_ns: int | None) -> float | None:
    """Time between two stamps, never below 0; null where there is no second."""
    return None if at_ns is None else max(at_ns - start_ns, 0) / 1e9


def journal_path(trace: Path) -> Path:
    """`my.jsonl` has `my.calls.jsonl` beside it."""
    return trace.with_name(trace.name.removesuffix(".jsonl") + ".calls.jsonl")


class Journal:
    """Appends lines, each written at once. Raises OSError when the disk refuses."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.size = 0

    def __enter__(self) -> Self:
        self._file = self._path.open("ab", buffering=0)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def write(self, line: Line) -> None:
        data = msgspec.json.encode(line) + b"\n"
        self._file.write(data)
        self.size += len(data)
