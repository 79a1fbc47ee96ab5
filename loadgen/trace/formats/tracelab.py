"""TraceLab's normalised rounds: token counts, cached prefix and event times of Claude Code and Codex sessions.

A round tells how long its prompt was and how much of it the provider's cache held, not what it shares with the
round before. A prompt at least as long as the one before is taken as its continuation, a shorter one as sharing
what was cached.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loadgen.trace.formats.base import Agent, Call, Format, Report
from loadgen.trace.formats.rows import get_count, get_list, get_text, json_rows, seconds
from loadgen.trace.model import Blocks

BLOCK = 64
_INPUTS = ("user_message", "tool_result")


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    for path in files:
        sessions: dict[str, list[tuple[int, dict[str, Any]]]] = defaultdict(list)
        for number, row in json_rows(path, report):
            session, index = get_text(row, "session_id"), get_count(row, "round_index")
            if session is None or get_count(row, "input_tokens_total") is None:
                report.skip("round without a session and a prompt length", f"{path}:{number}")
            else:
                sessions[session].append((len(sessions[session]) if index is None else index, row))
        for name, rows in sessions.items():
            rows.sort(key=lambda entry: entry[0])
            agent = Agent(id=name, calls=[])
            for _, row in rows:
                agent.calls.append(_call(row, agent.calls[-1] if agent.calls else None))
            yield [agent]


def _call(row: dict[str, Any], previous: Call | None) -> Call:
    tokens, cached = get_count(row, "input_tokens_total") or 0, get_count(row, "prefix_tokens")
    before = 0 if previous is None else previous.input_tokens or 0
    shared = before if tokens >= before else min(cached or 0, before, tokens)
    events = [
        (get_text(event, "event_type"), seconds(event.get("timestamp")))
        for event in get_list(row, "timing_events")
        if isinstance(event, dict)
    ]
    asked = [at for kind, at in events if kind in _INPUTS and at is not None]
    answered = [at for kind, at in events if kind not in _INPUTS and at is not None]
    start, end = max(asked, default=None), max(answered, default=None)
    return Call(
        blocks=Blocks(
            reuse=shared // BLOCK, new=tokens // BLOCK - shared // BLOCK, tail_tokens=tokens % BLOCK
        ),
        start_s=start if start is not None else min(answered, default=None),
        end_s=end,
        gap_kind="human" if get_text(row, "first_input_event_type") == "user_message" else "tool",
        input_tokens=tokens,
        output_tokens=get_count(row, "output_tokens"),
        reasoning_tokens=get_count(row, "reasoning_output_tokens"),
        cached_tokens=cached,
        stop="tool_use" if get_list(row, "tools") else "end_turn",
    )


FORMAT = Format(
    name="tracelab",
    title="TraceLab rounds",
    fidelity="blocks",
    lost="text; prefix structure (inferred from lengths and the cached prefix); sub-agent links",
    detect=lambda head: (
        bool(head.rows)
        and all(key in head.rows[0] for key in ("session_id", "round_index", "input_tokens_total"))
    ),
    read=_read,
    block_size=BLOCK,
    licence="CC-BY-4.0",
)
