"""The list of calls beside the trace: one line for everything that passed, whether or not it became a turn.

It holds no content: no body, no query, no header but the client's name, identifiers only as pseudonyms.
"""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec

from loadgen.record.exchange import Ending


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
