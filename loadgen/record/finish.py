"""From a live recording to a finished trace: a torn last line is cut, sessions are closed and sorted."""

from __future__ import annotations

from pathlib import Path
from typing import BinaryIO

from loadgen.errors import InputError
from loadgen.trace.check import TraceProblem
from loadgen.trace.lines import read_lines
from loadgen.trace.model import Blob, End, Header, Session, Turn
from loadgen.trace.reader import decode_record
from loadgen.trace.writer import TraceWriter

_TAIL = 1 << 16


def cut_torn_line(path: Path) -> int:
    """Remove what follows the last line end, which a killed process or a full disk left; how many bytes that were."""
    with path.open("r+b") as file:
        size = end = file.seek(0, 2)
        while end > 0:
            start = max(end - _TAIL, 0)
            file.seek(start)
            found = file.read(end - start).rfind(b"\n")
            if found >= 0:
                end = start + found + 1
                break
            end = start
        if end < size:
            file.truncate(end)
    return size - end


def finish(live: Path, target: Path) -> int:
    """Write the recording `live` to `target` (which may be the same file, or end in `.zst` or `.gz`) as a finished trace,
    its first session starting at 0.

    Returns the bytes of a torn last line that were cut. Raises InputError with file and line where `live` is no
    recording, or when the disk refuses; `live` is then left as it is, less its torn line.
    """
    try:
        cut = cut_torn_line(live)
        with live.open("rb") as file:
            _rewrite(live, file, target)
    except OSError as error:
        raise InputError(f"{live} cannot be finished: {error.strerror or error}") from None
    if live != target:
        live.unlink()
    return cut


def _rewrite(live: Path, file: BinaryIO, target: Path) -> None:
    at = 1
    try:
        lines = read_lines(live, file)
        header = decode_record(next(lines, (1, 0, b""))[2])
        if not isinstance(header, Header):
            raise TraceProblem("this is no trace: its first line is no header")
        with TraceWriter(target, header, rebase=True) as writer:
            open_sessions: dict[str, None] = {}
            for at, _, line in lines:  # noqa: B007 - told when a line is bad
                match decode_record(line):
                    case Blob(json=value, file=None):
                        writer.json_blob(value)
                    case Session() as session:
                        writer.session(session)
                        open_sessions[session.id] = None
                    case Turn() as turn:
                        writer.turn(turn)
                    case End(session=name):
                        writer.end(name)
                        open_sessions.pop(name, None)
                    case record:
                        raise TraceProblem(
                            f"a recording holds no {type(record).__name__.lower()} record here"
                        )
            for name in open_sessions:
                writer.end(name)
    except TraceProblem as problem:
        raise InputError(f"{live}:{at}: {problem}") from None
