"""One HTTP exchange as it went through the proxy: the contract between the forwarding process and the scribe.

The forwarder only copies bytes and takes times; everything that thinks about them (decoding, redaction,
grouping) happens in another process, so that no agent waits for it.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Literal

import msgspec

Ending = Literal["complete", "client_abort", "upstream_abort", "upstream_unreachable", "refused", "cut"]

_LENGTH = struct.Struct(">Q")


class Exchange(msgspec.Struct, kw_only=True, tag="exchange"):
    """Stamps are nanoseconds of the forwarder's monotonic clock; `Ready` puts them on the wall clock."""

    number: int  # in order of arrival
    method: str
    target: str  # path and query as the client wrote them
    version: str  # "1.1"
    request_headers: list[tuple[str, str]]
    request_body: bytes
    request_lost: int = 0  # bytes of the body that passed and were not kept, because it was too large
    status: int | None = None  # null when upstream never answered
    response_headers: list[tuple[str, str]] = []
    response_body: bytes = b""
    response_lost: int = 0
    marks: list[tuple[int, int]] = []  # (read_ns, offset in response_body behind what that read brought)
    received_ns: int  # the client's headers were read
    sent_ns: int | None = None  # last byte of the request was handed to upstream's socket
    headers_ns: int | None = None  # upstream's headers were read
    end_ns: int
    added_ns: int = 0  # our own time before the request went up, and between the first read and its write
    max_hold_ns: int = 0  # longest time from one read of upstream to the end of its write to the client
    ending: Ending
    error: str | None = None


class Ready(msgspec.Struct, kw_only=True, tag="ready"):
    """First message: the proxy listens. One instant on both clocks anchors all stamps."""

    url: str
    mono_ns: int
    wall_ns: int


class Failed(msgspec.Struct, kw_only=True, tag="failed"):
    """First message instead of `Ready`: the proxy cannot listen."""

    reason: str


class Lost(msgspec.Struct, kw_only=True, tag="lost"):
    """The scribe was too far behind: these many exchanges went through without being recorded."""

    exchanges: int


Notice = Exchange | Ready | Failed | Lost

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Notice)


def frame(notice: Notice) -> bytes:
    """One message for the pipe between the two processes."""
    body = _encoder.encode(notice)
    return _LENGTH.pack(len(body)) + body


class FrameReader:
    """Cuts a byte stream into notices; what a dying forwarder left half-written is never delivered."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, data: bytes) -> Iterator[Notice]:
        self._buffer += data
        start = 0
        while len(self._buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer, start)
            end = start + _LENGTH.size + length
            if len(self._buffer) < end:
                break
            yield _decoder.decode(memoryview(self._buffer)[start + _LENGTH.size : end])
            start = end
        del self._buffer[:start]
