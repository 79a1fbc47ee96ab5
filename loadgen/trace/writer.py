"""Write a trace: checked as it is written, sorted by session, in place only when it is complete."""

from __future__ import annotations

import gzip
import hashlib
import tempfile
from array import array
from pathlib import Path
from types import TracebackType
from typing import IO, Any, BinaryIO

import msgspec
import orjson
import zstandard

from loadgen.errors import InputError
from loadgen.outfile import destination, replacing
from loadgen.trace.check import Checker, TraceProblem
from loadgen.trace.lines import read_lines
from loadgen.trace.model import Blob, End, Header, Record, Session, Turn
from loadgen.trace.reader import decode_record

_ENCODER = msgspec.json.Encoder()


class TraceWriter:
    """Context manager. Records of many sessions may come interleaved; each session's turns come in order.

    Default: lines go to an unnamed file beside `path`; on success the sessions are put one after the other,
    the file is compressed if it is called `.gz` or `.zst`, and appears by rename. On an exception nothing is left.
    What `path` may be: `loadgen.outfile`.
    `header` may be changed until then. `rebase`: session starts are moved so that the earliest is 0.
    `live=True`: lines are appended to `path` and flushed one by one, as they come; a killed recording keeps them.

    Raises InputError when a record breaks a rule of the format (`loadgen.trace.check`) or the disk refuses.
    """

    def __init__(self, path: str | Path, header: Header, *, live: bool = False, rebase: bool = False) -> None:
        self.path = Path(path)
        self.header = header
        self._live = live
        self._checker = Checker()
        self._blobs: set[str] = set()
        self._ranges: dict[str, array[int]] = {}
        self._blob_ranges = array("Q")
        self._earliest: float | None = None
        self._rebase = rebase
        self._size = 0
        if live and self.path.suffix in (".gz", ".zst"):
            raise InputError(f"{self.path}: a live recording is not compressed; name it .jsonl")
        self._file: IO[bytes] | None = None

    def __enter__(self) -> TraceWriter:
        try:
            target = destination(self.path)
            if self._live:
                self._file = self._open_live()
            else:
                folder = None if target is None else target.parent
                self._file = tempfile.TemporaryFile(buffering=1 << 20, dir=folder)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror or error}") from None
        if self._live and self._size == 0:
            self._put(self.header)
        elif not self._live:
            self._check(self.header)
        return self

    def _open_live(self) -> BinaryIO:
        """Open for appending; an earlier recording in the file must be whole, and is taken up."""
        at = 0
        try:
            if self.path.exists():
                with self.path.open("rb") as earlier:
                    for number, offset, line in read_lines(self.path, earlier):
                        at = number
                        record = decode_record(line)
                        if not line.endswith(b"\n"):
                            raise TraceProblem("the last line has no line end")
                        self._checker.add(record)
                        if isinstance(record, Blob):
                            self._blobs.add(record.sha256)
                        self._size = offset + len(line)
        except TraceProblem as problem:
            raise InputError(f"{self.path}:{at}: {problem}; record into another file") from None
        return self.path.open("ab", buffering=0)

    # records

    def json_blob(self, value: Any) -> str:
        """Store a JSON value once; its reference."""
        digest = hashlib.sha256(orjson.dumps(value)).hexdigest()
        if digest not in self._blobs:
            self._blobs.add(digest)
            self._put(Blob(sha256=digest, json=value))
        return f"sha256:{digest}"

    def file_blob(self, path: str | Path, sha256: str) -> str:
        """Refer to a text file inside the trace's folder; its reference. Raises InputError when it lies elsewhere."""
        folder = self.path.parent.resolve()
        target = Path(path).resolve()
        if not target.is_relative_to(folder):
            raise InputError(
                f"{target} lies outside {folder}; write the trace into the folder of its texts or above it"
            )
        if sha256 not in self._blobs:
            self._blobs.add(sha256)
            self._put(Blob(sha256=sha256, file=target.relative_to(folder).as_posix()))
        return f"sha256:{sha256}"

    def session(self, session: Session) -> None:
        self._earliest = session.start_s if self._earliest is None else min(self._earliest, session.start_s)
        self._put(session, session.id)

    def turn(self, turn: Turn) -> None:
        self._put(turn, turn.session)

    def end(self, session_id: str) -> None:
        self._put(End(session=session_id), session_id)

    def _put(self, record: Record, session: str | None = None) -> None:
        if self._file is None:
            raise RuntimeError("TraceWriter is used outside of its `with`")
        self._check(record)
        line = _ENCODER.encode(record) + b"\n"
        try:
            self._file.write(line)
        except OSError as error:
            raise InputError(f"{self.path} cannot be written: {error.strerror or error}") from None
        if not self._live:
            self._note(session, len(line))
        self._size += len(line)

    def _check(self, record: Record) -> None:
        try:
            self._checker.add(record)
        except TraceProblem as problem:
            raise InputError(f"{self.path}: {problem}") from None

    def _note(self, session: str | None, length: int) -> None:
        if session is None:
            ranges = self._blob_ranges
        else:
            ranges = self._ranges.setdefault(session, array("Q"))
        if ranges and ranges[-1] == self._size:
            ranges[-1] += length
        else:
            ranges.extend((self._size, self._size + length))

    # the end

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        file, self._file = self._file, None
        if file is None or self._live:
            if file is not None:
                file.close()
            return
        try:
            with file:
                if kind is None:
                    self._finish(file)
        except OSError as failure:
            raise InputError(f"{self.path} cannot be written: {failure.strerror or failure}") from None

    def _finish(self, file: IO[bytes]) -> None:
        try:
            self._checker.finish()
        except TraceProblem as problem:
            raise InputError(f"{self.path}: {problem}") from None
        file.flush()
        shift = (self._earliest or 0.0) if self._rebase else 0.0
        with replacing(self.path) as part, _packed(part, self.path.suffix) as out:
            out.write(_ENCODER.encode(self.header) + b"\n")
            _copy(file, out, self._blob_ranges)
            for ranges in self._ranges.values():
                if shift:
                    file.seek(ranges[0])
                    line = file.readline()
                    session = decode_record(line)
                    assert isinstance(session, Session)
                    session.start_s -= shift
                    out.write(_ENCODER.encode(session) + b"\n")
                    ranges[0] += len(line)
                _copy(file, out, ranges)


def _packed(path: Path, suffix: str) -> Any:
    if suffix == ".zst":
        return zstandard.open(path, "wb", cctx=zstandard.ZstdCompressor(level=9))
    if suffix == ".gz":
        return gzip.open(path, "wb", compresslevel=6)
    return path.open("wb")


def _copy(source: IO[bytes], target: Any, ranges: array[int]) -> None:
    for i in range(0, len(ranges), 2):
        source.seek(ranges[i])
        length = ranges[i + 1] - ranges[i]
        while length > 0:
            chunk = source.read(min(length, 1 << 20))
            target.write(chunk)
            length -= len(chunk)
