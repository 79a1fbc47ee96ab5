"""Open a trace: check every record once, keep an index of byte ranges, read a session's turns when they are asked for."""

from __future__ import annotations

import hashlib
import os
from array import array
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import msgspec
import orjson

from loadgen.errors import InputError
from loadgen.trace.check import Checker, TraceProblem
from loadgen.trace.lines import open_unpacked, read_lines
from loadgen.trace.model import Blob, Header, Record, Session, Turn

_RECORD = msgspec.json.Decoder(Record)


def decode_record(line: bytes) -> Record:
    """One line as a record. Raises TraceProblem with what is wrong with it."""
    try:
        return _RECORD.decode(line)
    except msgspec.ValidationError as error:
        raise TraceProblem(_sentence(str(error))) from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if not line.strip():
            raise TraceProblem("the line is empty") from None
        if b"\x00" in line:
            raise TraceProblem(
                "the line holds NUL bytes; the file was damaged while it was written"
            ) from None
        if not line.endswith(b"\n"):
            raise TraceProblem("the last line is cut off; the file was not written to its end") from None
        raise TraceProblem(f"this is not a JSON object ({error})") from None


def _sentence(text: str) -> str:
    """msgspec says "Expected `int`, got `str` - at `$.index`"; put the field first."""
    what, _, where = text.partition(" - at ")
    field = where.strip("`").removeprefix("$.")
    what = what[:1].lower() + what[1:]
    return f"field `{field}`: {what}" if field and field != "$" else what


class TraceFile:
    """An open, checked trace.

    `sessions` in file order. `turns` reads from the file: memory holds one session's turns, an index of two
    integers a contiguous range, and the session records. Close it, or use it in a `with`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.sessions: list[Session] = []
        self._ranges: dict[str, array[int]] = {}  # begin, end, begin, end, … of a session's turn lines
        self._blobs: dict[str, tuple[int, int]] = {}
        self._folder = path.parent.resolve()
        self._beside: dict[Path, None] = {}  # files of blobs, in order
        self._verified: set[str] = set()
        self._checker = Checker()
        self._file, self.sha256 = open_unpacked(path)
        try:
            self._scan()
        except BaseException:
            self._file.close()
            raise
        assert self._checker.header is not None
        self.header: Header = self._checker.header

    def _scan(self) -> None:
        at = 0
        checker = self._checker
        try:
            for number, offset, line in read_lines(self.path, self._file):
                at = number
                record = decode_record(line)
                checker.add(record)
                if isinstance(record, Turn):
                    ranges = self._ranges[record.session]
                    if ranges and ranges[-1] == offset:
                        ranges[-1] = offset + len(line)
                    else:
                        ranges.extend((offset, offset + len(line)))
                elif isinstance(record, Session):
                    self.sessions.append(record)
                    self._ranges[record.id] = array("Q")
                elif isinstance(record, Blob):
                    self._add_blob(record, offset, len(line))
        except TraceProblem as problem:
            raise InputError(f"{self.path}:{at}: {problem}") from None
        try:
            checker.finish()
        except TraceProblem as problem:
            raise InputError(f"{self.path}: {problem}") from None

    def _add_blob(self, blob: Blob, offset: int, length: int) -> None:
        if blob.file is not None:
            self._beside[self._inside(blob.file)] = None
        elif (found := hashlib.sha256(orjson.dumps(blob.json)).hexdigest()) != blob.sha256:
            raise TraceProblem(f"the blob's `json` has the digest {found}, not {blob.sha256}")
        self._blobs[f"sha256:{blob.sha256}"] = (offset, length)

    def _inside(self, name: str) -> Path:
        folder = self._folder
        target = (folder / name).resolve()
        if "\x00" in name or not target.is_relative_to(folder):
            raise TraceProblem(f"the blob's file {name!r} lies outside the trace's folder")
        if not target.is_file():
            raise TraceProblem(f"the blob's file {name!r} is missing beside the trace")
        return target

    # what a player asks for

    def turns(self, session_id: str) -> list[Turn]:
        """All turns of a session by index, then attempt. Raises KeyError for a session that is not in the file."""
        return sorted(self._read_turns(session_id), key=lambda turn: (turn.index, turn.attempt))

    def _read_turns(self, session_id: str) -> Iterator[Turn]:
        ranges = self._ranges[session_id]
        for i in range(0, len(ranges), 2):
            block = self._read(ranges[i], ranges[i + 1] - ranges[i])
            for line in filter(None, block.split(b"\n")):
                record = decode_record(line)
                if isinstance(record, Turn):
                    yield record

    def turn_count(self, session_id: str) -> int:
        """Turns of a session, retries not counted."""
        return self._checker.turn_count(session_id)

    def open_sessions(self) -> list[str]:
        """Sessions without an `end` record: the recording was cut, or goes on."""
        return self._checker.open_sessions()

    def blob(self, ref: str) -> Blob:
        """The blob of a `sha256:…` reference. Raises KeyError when the file has none."""
        offset, length = self._blobs[ref]
        record = decode_record(self._read(offset, length))
        assert isinstance(record, Blob)
        return record

    def blob_refs(self) -> list[str]:
        return list(self._blobs)

    def files(self) -> list[Path]:
        """Every file that the trace is read from: itself, and the texts that it keeps beside it."""
        return [self.path, *self._beside]

    def blob_path(self, ref: str) -> Path:
        """The file of a blob that is kept beside the trace, its digest checked on first use."""
        blob = self.blob(ref)
        if blob.file is None:
            raise InputError(f"{self.path}: blob {ref} stands in the trace itself, it has no file")
        try:
            path = self._inside(blob.file)
        except TraceProblem as problem:
            raise InputError(f"{self.path}: {problem}") from None
        if ref not in self._verified:
            with path.open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != blob.sha256:
                    raise InputError(
                        f"{path} is not the text that {self.path} was made for (its SHA-256 differs)"
                    )
            self._verified.add(ref)
        return path

    def _read(self, offset: int, length: int) -> bytes:
        data = os.pread(self._file.fileno(), length, offset)
        if len(data) != length:
            raise InputError(f"{self.path} became shorter while it was in use")
        return data

    def close(self) -> None:
        self._file.close()

    def __enter__(self) -> TraceFile:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def open_trace(path: str | Path) -> TraceFile:
    """Open and check a trace (`.jsonl`, `.jsonl.gz`, `.jsonl.zst`).

    Raises InputError with file, line and what was expected at the first record that breaks a rule.
    """
    return TraceFile(Path(path))
