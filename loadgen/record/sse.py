"""Server-sent events out of recorded pieces, each with the time at which its last byte was read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple


class Event(NamedTuple):
    at_ns: int
    name: str  # "" when the event has no `event:` line
    data: bytes


def events(pieces: Iterable[tuple[int, bytes]]) -> Iterator[Event]:
    """Events of a stream given as (read_ns, bytes).

    Lines end in LF, CRLF or CR, as the standard allows; comments and unknown fields are skipped; a last event that
    no blank line ended is not delivered.
    """
    tail = b""
    name = ""
    data: list[bytes] = []
    for at_ns, piece in pieces:
        block = tail + piece
        if block.endswith(b"\r"):  # its LF may come with the next piece
            block, held = block[:-1], b"\r"
        else:
            held = b""
        *lines, rest = block.replace(b"\r\n", b"\n").replace(b"\r", b"\n").split(b"\n")
        tail = rest + held
        for line in lines:
            if not line:
                if data:
                    yield Event(at_ns, name, b"\n".join(data))
                name, data = "", []
            elif line.startswith(b"data:"):
                data.append(line[6:] if line.startswith(b"data: ") else line[5:])
            elif line.startswith(b"event:"):
                name = line[6:].strip().decode("utf-8", "replace")
