"""Export traces to other tools' formats."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from loadgen.errors import InputError
from loadgen.trace.formats import out_blocks, out_messages
from loadgen.trace.formats.base import Report
from loadgen.trace.reader import TraceFile

Export = Callable[[TraceFile, Report], Iterator[bytes]]


def aiperf(trace: TraceFile, report: Report) -> Iterator[bytes]:
    """Rows with messages where the trace has text, else Mooncake rows of 512-token blocks."""
    has_text = trace.header.fidelity in ("bodies", "messages")
    yield from (out_messages.aiperf if has_text else out_blocks.mooncake)(trace, report)


EXPORTS: dict[str, Export] = {
    "mooncake": out_blocks.mooncake,
    "weka": out_blocks.weka,
    "vllm": out_messages.vllm,
    "lmcache": out_messages.lmcache,
    "aiperf": aiperf,
    "otel": out_messages.otel,
}


def export_trace(trace: TraceFile, to: str, out: Path) -> Report:
    """Write `trace` in the format `to` (a key of EXPORTS) to `out`, in place only when complete.

    The report says what the format could not hold. Raises InputError for an unknown format, a trace that has not
    what the format needs, or a disk that refuses.
    """
    if to not in EXPORTS:
        raise InputError(f"cannot export to {to!r}; there are: {', '.join(EXPORTS)}")
    if out.exists() and out.resolve() == trace.path.resolve():
        raise InputError(f"{out} is both read and written; choose another -o")
    report = Report()
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{out.name}.", suffix=".part", dir=out.parent)
        part = Path(name)
        try:
            with os.fdopen(handle, "wb", buffering=1 << 20) as file:
                for piece in EXPORTS[to](trace, report):
                    file.write(piece)
            os.chmod(part, 0o644)
            os.replace(part, out)
        finally:
            part.unlink(missing_ok=True)
    except OSError as error:
        raise InputError(f"{out} cannot be written: {error.strerror or error}") from None
    return report
