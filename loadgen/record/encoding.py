"""Decodes a copy of a compressed body; what went over the wire stays compressed."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol

import brotli  # type: ignore[import-untyped]
import zstandard

DECODED_LIMIT = 256 << 20  # a small body can decode to a huge one


class Decode(Protocol):
    def __call__(self, data: bytes, /) -> bytes: ...


class UndecodableError(ValueError):
    """The body is not in the encoding that its headers name."""


def decoder(content_encoding: str | None) -> Decode:
    """A function that decodes the pieces of one body, in their order.

    `content_encoding` is the header's value, several encodings in the order they were applied. Raises
    UndecodableError for one that is not known; the function raises it for damaged data and for more than 256 MiB.
    """
    names = [name.strip().lower() for name in (content_encoding or "").split(",")]
    steps = [_step(name) for name in reversed(names) if name not in ("", "identity")]
    total = 0

    def decode(data: bytes) -> bytes:
        nonlocal total
        try:
            for step in steps:
                data = step(data)
        except (zlib.error, brotli.error, zstandard.ZstdError) as error:
            raise UndecodableError(str(error)) from None
        total += len(data)
        if total > DECODED_LIMIT:
            raise UndecodableError(f"decodes to more than {DECODED_LIMIT >> 20} MiB")
        return data

    return decode


def _step(name: str) -> Callable[[bytes], bytes]:
    match name:
        case "gzip" | "x-gzip":
            return zlib.decompressobj(wbits=31).decompress
        case "deflate":
            return _Deflate().decompress
        case "br":
            process: Callable[[bytes], bytes] = brotli.Decompressor().process
            return process
        case "zstd":
            return zstandard.ZstdDecompressor().decompressobj().decompress
        case _:
            raise UndecodableError(f"unknown content encoding {name!r}")


class _Deflate:
    """HTTP's "deflate" is zlib by the standard and raw deflate in some servers."""

    def __init__(self) -> None:
        self._stream: zlib._Decompress | None = None

    def decompress(self, data: bytes) -> bytes:
        if self._stream is None and data:
            self._stream = zlib.decompressobj(wbits=15 if data[0] & 0x0F == 8 else -15)
        return self._stream.decompress(data) if self._stream is not None else b""
