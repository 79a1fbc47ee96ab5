"""`samples-<worker>.jsonl`: written a turn at a time, read back whatever happened to the writer.

Each line is handed to the kernel in one write when its turn ends, so a killed process loses nothing that it
measured. (A machine that loses power may: the file is synced only when it is closed.)
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from loadgen.errors import InputError, LoadgenError
from loadgen.measure.sample import Sample

PATTERN = "samples-*.jsonl"
_TAIL = 1 << 20
T = TypeVar("T")


class JournalError(LoadgenError):
    """A sample could not be stored."""


class SampleWriter:
    """Appends samples to one file. After a failed write nothing more is written: the error is raised once and `lost` counts on."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.written = 0
        self.lost = 0
        self._failed = False
        self._encoder = msgspec.json.Encoder()
        self._line = bytearray()
        try:
            self._fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
            _drop_half_line(self._fd)
        except OSError as error:
            raise InputError(f"{path} cannot be written: {error.strerror}") from None

    def write(self, sample: Sample) -> None:
        """Append one line. Raises JournalError once, when the disk refuses."""
        if self._failed:
            self.lost += 1
            return
        self._encoder.encode_into(sample, self._line)
        self._line += b"\n"
        try:
            view = memoryview(self._line)
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError as error:
            self._failed = True
            self.lost += 1
            raise JournalError(
                f"samples can no longer be stored in {self.path}: {error.strerror}; "
                f"the {self.written} turns before are kept, later ones are lost: free space and run again"
            ) from None
        self.written += 1

    def close(self) -> None:
        if self._fd >= 0:
            if not self._failed:
                os.fsync(self._fd)
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> SampleWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _drop_half_line(fd: int) -> None:
    """Cut a half-written last line, which a killed writer may have left, so that the next line starts clean."""
    size = os.fstat(fd).st_size
    tail = os.pread(fd, _TAIL, max(0, size - _TAIL))
    if tail and not tail.endswith(b"\n"):
        os.ftruncate(fd, size - len(tail) + tail.rfind(b"\n") + 1)


class SampleReader:
    """Iterates over a run's samples, file by file; `truncated` counts half-written last lines met so far."""

    def __init__(self, run_dir: Path) -> None:
        self.paths = sorted(path for path in run_dir.glob(PATTERN) if path.is_file())
        self.truncated = 0
        if not self.paths:
            raise InputError(f"{run_dir} holds no samples ({PATTERN}): is it a run folder?")

    def __iter__(self) -> Iterator[Sample]:
        return self.decoded(Sample)

    def decoded(self, kind: type[T]) -> Iterator[T]:
        """The lines as another structure; one with fewer fields is read faster."""
        decode = msgspec.json.Decoder(kind).decode
        self.truncated = 0
        for path in self.paths:
            with path.open("rb", buffering=_TAIL) as file:
                for number, line in enumerate(file, 1):
                    try:
                        sample = decode(line)
                    except (msgspec.DecodeError, UnicodeDecodeError) as error:
                        if not line.endswith(b"\n"):
                            self.truncated += 1
                            break
                        raise InputError(
                            f"{path}, line {number}: not a sample ({error}); remove the line"
                        ) from None
                    yield sample


def read_samples(run_dir: Path) -> SampleReader:
    """All samples of a run, in the order of the files. Raises InputError when there is none or a line is damaged."""
    return SampleReader(run_dir)
