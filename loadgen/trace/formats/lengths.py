"""Request logs of lengths and times alone: Azure LLM inference traces and BurstGPT. No prefix is known."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.rows import csv_rows, seconds


def _number(text: str | None) -> float | None:
    try:
        found = float(text or "")
    except ValueError:
        return None
    return found if 0 <= found < 2**53 else None


def _azure(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """Each row is a session of one turn: the data has no session ids."""
    for path in files:
        for number, row in csv_rows(path, report):
            start = seconds(row.get("TIMESTAMP"))
            prompt, output = _number(row.get("ContextTokens")), _number(row.get("GeneratedTokens"))
            if prompt is None or output is None or start is None:
                report.skip("row without a time and two token counts", f"{path}:{number}")
                continue
            call = Call(start_s=start, input_tokens=int(prompt), output_tokens=int(output))
            yield [Agent(id=f"{path.stem}:{number}", calls=[call])]


def _burstgpt(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """Rows of one session id form a session; without one (API calls, the older files) each row is one.

    A failed request has no response tokens, and often no request tokens either: then nothing tells what to play.
    """
    for path in files:
        sessions: dict[str, Agent] = {}
        for number, row in csv_rows(path, report):
            start = _number(row.get("Timestamp"))
            prompt, output = _number(row.get("Request tokens")), _number(row.get("Response tokens"))
            if prompt is None or output is None or start is None:
                report.skip("row without a time and two token counts", f"{path}:{number}")
                continue
            if prompt == 0 and output == 0:
                report.skip("failed request whose prompt is not counted", f"{path}:{number}")
                continue
            elapsed = _number(row.get("Elapsed time"))
            call = Call(start_s=start, input_tokens=int(prompt), output_tokens=int(output), gap_kind="human")
            call.end_s = None if elapsed is None else start + elapsed
            if output == 0:
                call.stop = "error"
            key = row.get("Session ID") or f"{number}"
            sessions.setdefault(key, Agent(id=f"{path.stem}:{key}", calls=[])).calls.append(call)
        for agent in sessions.values():
            agent.calls.sort(key=lambda call: call.start_s or 0.0)
            yield [agent]


def _has_columns(head: Head, *names: bytes) -> bool:
    first = head.data.split(b"\n", 1)[0]
    return all(name in first for name in names) and first.lstrip()[:1] != b"{"


AZURE = Format(
    name="azure",
    title="Azure LLM inference traces",
    fidelity="lengths",
    lost="sessions, prefixes, text, latencies",
    detect=lambda head: _has_columns(head, b"TIMESTAMP", b"ContextTokens", b"GeneratedTokens"),
    read=_azure,
    licence="CC-BY-4.0",
)
BURSTGPT = Format(
    name="burstgpt",
    title="BurstGPT",
    fidelity="lengths",
    lost="prefixes, text, TTFT",
    detect=lambda head: _has_columns(head, b"Timestamp", b"Request tokens", b"Response tokens"),
    read=_burstgpt,
    licence="CC-BY-4.0",
)
