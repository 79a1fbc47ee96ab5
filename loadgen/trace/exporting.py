"""Export traces to other tools' formats."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from loadgen.errors import InputError
from loadgen.outfile import refuse_input, replacing
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
    refuse_input(out, trace.files())
    report = Report()
    with replacing(out) as part, part.open("wb", buffering=1 << 20) as file:
        for piece in EXPORTS[to](trace, report):
            file.write(piece)
    return report
