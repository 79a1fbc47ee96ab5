"""Standard output that nobody reads any more: a command goes on and ends with its own exit code.

`loadgen gate … | head -1` closes the pipe while the verdict is printed. The verdict stands all the same, and so does
what else the command was to do.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from loadgen.errors import InputError


class PatientOutput:
    """A text stream that drops what is written once its reader is gone. Raises InputError where it cannot be written for
    another reason, such as a full disk."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            self._lost(error)
            return len(text)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._lost(error)

    def writelines(self, lines: Any) -> None:
        for line in lines:
            self.write(line)

    def _lost(self, error: OSError) -> None:
        # What is buffered would be written again when Python ends: it goes where it hurts nobody.
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, self._stream.fileno())
        os.close(nowhere)
        if error.errno != errno.EPIPE:
            raise InputError(f"the output cannot be written: {error.strerror}") from None

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


@contextmanager
def patient_output() -> Iterator[None]:
    """Standard output of this process is a `PatientOutput` in the block; what is buffered is written at its end, while errors
    can still be told."""
    stream = sys.stdout
    if stream is None:  # closed by whoever started us
        yield
        return
    sys.stdout = PatientOutput(stream)
    try:
        try:
            yield
        except SystemExit:  # --help and --version
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    finally:
        sys.stdout = stream
