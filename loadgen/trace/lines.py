"""A trace file as lines with byte offsets: plain, gzip or zstd, told apart by its first bytes.

Memory is bounded by the longest line. A compressed file is unpacked once into an unnamed temporary file, so
that a session can be read again from its offset.
"""

from __future__ import annotations

import codecs
import gzip
import hashlib
import stat
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, BinaryIO

import zstandard

from loadgen.errors import InputError

MAX_LINE = 64 << 20
"""Bytes of one line. The largest honest line is a system prompt or a tool result of a few megabytes."""

BOMB_FLOOR = 256 << 20
BOMB_RATIO = 500
"""Unpacked bytes beyond the floor may be at most this many times the packed ones (real traces reach about 40)."""

_CHUNK = 1 << 20
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_SKIPPABLE = range(0x184D2A50, 0x184D2A60)  # frames that hold no text
_HEADER = 18  # bytes of a zstd frame's header at most
_RLE = 1


def open_unpacked(path: Path) -> tuple[BinaryIO, str]:
    """A seekable binary file of the unpacked text, and the SHA-256 (hex) of the file as it lies on disk.

    The file stands at the text's beginning: behind a byte order mark, where there is one.
    Raises InputError when the file cannot be read, is damaged, or unpacks to an absurd size.
    """
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise InputError(f"{path} cannot be read: it is no regular file")
        raw: BinaryIO = path.open("rb", buffering=_CHUNK)
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None
    try:
        digest = hashlib.file_digest(raw, "sha256").hexdigest()  # type: ignore[arg-type]
        raw.seek(0)
        magic = raw.read(4)
        raw.seek(0)
        if 0 < len(magic) < len(_ZSTD) and (_ZSTD.startswith(magic) or magic == _GZIP[:1]):
            raw.close()
            raise InputError(f"{path} is cut off: it ends within its first bytes")
        if magic[:2] != _GZIP and magic != _ZSTD:
            text = raw
        else:
            with raw:
                text = _unpack(path, raw, magic)
        if text.read(len(codecs.BOM_UTF8)) != codecs.BOM_UTF8:
            text.seek(0)
        return text, digest
    except OSError as error:
        raw.close()
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from None


def _unpack(path: Path, raw: BinaryIO, magic: bytes) -> BinaryIO:
    packed = path.stat().st_size
    if magic == _ZSTD and not _whole(raw, packed):
        # the decompressor ends without a word there
        raise InputError(
            f"{path} is cut off: it ends within a zstd frame; the file was not written to its end"
        )
    target: IO[bytes] = tempfile.TemporaryFile(prefix="loadgen-")  # noqa: SIM115 - the caller keeps it
    try:
        source: Any
        if magic == _ZSTD:
            source = zstandard.ZstdDecompressor(max_window_size=1 << 27).stream_reader(
                raw, read_across_frames=True
            )
        else:
            source = gzip.GzipFile(fileobj=raw)
        size = 0
        while chunk := source.read(_CHUNK):
            size += len(chunk)
            if size > max(BOMB_FLOOR, BOMB_RATIO * packed):
                raise InputError(
                    f"{path} unpacks to more than {BOMB_RATIO} times its size; unpack it yourself if you trust it"
                )
            target.write(chunk)
    except (zstandard.ZstdError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        target.close()
        raise InputError(
            f"{path} is damaged or cut off: {str(error).strip() or type(error).__name__}"
        ) from None
    except BaseException:
        target.close()
        raise
    target.seek(0)
    return target  # type: ignore[return-value]


def _whole(raw: BinaryIO, size: int) -> bool:
    """Whether every zstd frame in a file of `size` bytes ends; true for what is no frame, too: unpacking tells of it.

    Walks over the blocks' headers (RFC 8878, section 3.1), leaves `raw` at its beginning.
    """
    at = 0
    try:
        while at < size:
            raw.seek(at)
            head = raw.read(_HEADER)
            if len(head) < 8:  # no frame is so short
                return False
            if int.from_bytes(head[:4], "little") in _SKIPPABLE:
                at += 8 + int.from_bytes(head[4:8], "little")
                continue
            if not head.startswith(_ZSTD):
                return True
            length = zstandard.frame_header_size(head)
            if length > len(head):
                return False
            at += length
            last = False
            while not last:
                raw.seek(at)
                block = int.from_bytes(raw.read(3), "little")
                if at + 3 > size:
                    return False
                last = bool(block & 1)
                at += 3 + (1 if block >> 1 & 3 == _RLE else block >> 3)
            if zstandard.get_frame_parameters(head).has_checksum:
                at += 4
    except zstandard.ZstdError:
        return True
    finally:
        raw.seek(0)
    return at == size


def read_lines(path: Path, file: BinaryIO, max_line: int = MAX_LINE) -> Iterator[tuple[int, int, bytes]]:
    """(line number from 1, byte offset, line with its line end) of every line from where `file` stands.

    Raises InputError for a line over `max_line`.
    """
    offset = file.tell()
    number = 0
    while line := file.readline(max_line + 1):
        number += 1
        if len(line) > max_line:
            raise InputError(
                f"{path}:{number}: the line is longer than {max_line >> 20} MiB; this is no trace of loadgen"
            )
        yield number, offset, line
        offset += len(line)
