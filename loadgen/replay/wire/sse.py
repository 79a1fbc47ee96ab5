"""Server-sent events, sans IO: body bytes in, the `data` of complete events out (WHATWG HTML, section 9.2)."""

from __future__ import annotations

MAX_EVENT_BYTES = 32 << 20


class EventTooLongError(ValueError):
    """An event has not ended after `MAX_EVENT_BYTES`."""


class EventSplitter:
    r"""Cuts a stream into events. Lines may end in `\n`, `\r\n` or `\r`; comments, `id` and `retry` are dropped."""

    __slots__ = ("_pieces", "_size", "_skip_newline")

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._size = 0
        self._skip_newline = False

    @property
    def pending(self) -> bool:
        """Whether an event has begun and not ended."""
        return any(piece.strip() for piece in self._pieces)

    def feed(self, body: bytes) -> list[bytes]:
        """Data of the events that `body` completes, in order; lines of one event's data joined by a newline."""
        if self._skip_newline and body:
            self._skip_newline = False
            if body[:1] == b"\n":
                body = body[1:]
        if b"\r" in body:
            self._skip_newline = body.endswith(b"\r")
            body = body.replace(b"\r\n", b"\n").replace(b"\r", b"\n")
        if self._pieces:
            if b"\n" not in body:  # a long event in many pieces: joined once
                self._keep(body)
                return []
            body = b"".join((*self._pieces, body))
            self._pieces.clear()
            self._size = 0
        end = body.rfind(b"\n\n")
        if end < 0:
            self._keep(body)
            return []
        if end + 2 < len(body):
            self._keep(body[end + 2 :])
        if (
            body.startswith(b"data: ") and b"\n" not in body[:end]
        ):  # by far the most common: one line, one event
            return [body[6:end]]
        return [data for block in body[:end].split(b"\n\n") if (data := _data(block)) is not None]

    def _keep(self, body: bytes) -> None:
        if body:
            self._pieces.append(body)
            self._size += len(body)
            if self._size > MAX_EVENT_BYTES:
                raise EventTooLongError(f"an event has not ended after {MAX_EVENT_BYTES} bytes")


def _data(block: bytes) -> bytes | None:
    """The data of one event's lines, None where it has none (a comment, a ping without data)."""
    lines = []
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            lines.append(line[6:] if line[5:6] == b" " else line[5:])
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None
