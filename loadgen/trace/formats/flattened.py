"""Prompts as one text: the LMCache RFC's `trace.jsonl` and lmcache-agent-trace.

A prompt is cut where it stops sharing its beginning with the earlier prompt that it shares most with; the pieces
are user messages. So prefix sharing is exact to the character, and the original role borders are lost.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from loadgen.trace.formats.base import Agent, Call, Format, Report
from loadgen.trace.formats.chains import Logged, families
from loadgen.trace.formats.messages import from_openai, split_system
from loadgen.trace.formats.rows import get_count, get_list, get_number, get_text, json_rows
from loadgen.trace.model import Message

_LOOK_BACK = 64
"""Earlier prompts of a session that are compared; what an older one shares, one of these (or the first) shares as a rule."""


def shared_length(one: str, other: str) -> int:
    """Length of the common prefix of two texts."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def cut_prompts(prompts: Sequence[str]) -> list[list[Message]]:
    """Messages of each prompt, such that equal beginnings are equal messages.

    A border of one prompt that lies within what it shares with its model is a border of the model, too.
    """
    borders: list[set[int]] = []
    models: list[tuple[int, int]] = []
    for number, prompt in enumerate(prompts):
        best, model = 0, -1
        recent = range(number - 1, max(number - 1 - _LOOK_BACK, -1), -1)
        for other in (*recent, 0) if number > _LOOK_BACK else recent:
            if (
                prompts[other][:best] == prompt[:best]
                and (length := shared_length(prompts[other], prompt)) > best
            ):
                best, model = length, other
        models.append((model, best))
        borders.append(
            {0, len(prompt), best} | ({b for b in borders[model] if b <= best} if model >= 0 else set())
        )
    for number in range(len(prompts) - 1, -1, -1):
        model, best = models[number]
        if model >= 0:
            borders[model] |= {b for b in borders[number] if b <= best}
    found = []
    for number, prompt in enumerate(prompts):
        model, best = models[number]
        if model >= 0:  # borders that the model gained from its other followers
            borders[number] |= {b for b in borders[model] if b <= best}
        places = sorted(borders[number])
        found.append(
            [{"role": "user", "content": prompt[a:b]} for a, b in pairwise(places)]
            or [{"role": "user", "content": ""}]
        )
    return found


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """Lines are not always in time order. Only the start of a call is told: its gap holds the previous answer's time."""
    for path in files:
        sessions: dict[str, list[tuple[float, dict[str, Any]]]] = defaultdict(list)
        for number, row in json_rows(path, report):
            start = get_number(row, "timestamp")
            if start is None or start < 0 or not isinstance(row.get("input"), str):
                report.skip("row without a time and an input", f"{path}:{number}")
            else:
                if not row["input"]:
                    report.note("empty input; an empty message stands for it", f"{path}:{number}")
                sessions[get_text(row, "session_id") or path.stem].append((start / 1e6, row))
        for name, rows in sessions.items():
            rows.sort(key=lambda entry: entry[0])
            agent = Agent(id=name, calls=[])
            for (start, row), prompt in zip(
                rows, cut_prompts([str(row["input"]) for _, row in rows]), strict=True
            ):
                call = Call(
                    prompt=prompt,
                    answer={"role": "assistant", "content": get_text(row, "output") or ""},
                    start_s=start,
                )
                if agent.calls:
                    report.note("gap that holds the time of the previous answer, too (only starts are told)")
                    call.gap_s, call.gap_kind = start - (agent.calls[-1].start_s or start), "tool"
                agent.calls.append(call)
            yield [agent]


def _agentic(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """lmcache-agentic-traces: full messages, output length and the gap before each call."""
    for path in files:
        logged: list[Logged] = []
        for number, row in json_rows(path, report):
            prompt = [m for entry in get_list(row, "input") if (m := from_openai(entry)) is not None]
            system, prompt = split_system(prompt)
            if not prompt:
                report.skip("row without messages", f"{path}:{number}")
                continue
            gap = get_number(row, "pre_gap")
            call = Call(
                prompt=prompt,
                output_tokens=get_count(row, "output_length"),
                gap_s=None if gap is None or gap < 0 else gap,
            )
            logged.append(Logged(call, get_text(row, "session_id") or path.stem, system))
        yield from families(logged, path.stem)


RFC = Format(
    name="lmcache",
    title="LMCache RFC trace, lmcache-agent-trace",
    fidelity="messages",
    lost="roles, tool calls, token counts, latencies",
    detect=lambda head: (
        bool(head.rows) and all(key in head.rows[0] for key in ("timestamp", "input", "output", "session_id"))
    ),
    read=_read,
    licence="Apache-2.0",
)
AGENTIC = Format(
    name="lmcache-agentic",
    title="lmcache-agentic-traces",
    fidelity="messages",
    lost="answers after the last call, prompt token counts, latencies",
    detect=lambda head: (
        bool(head.rows) and all(key in head.rows[0] for key in ("session_id", "input", "output_length"))
    ),
    read=_agentic,
    licence="MIT",
)
