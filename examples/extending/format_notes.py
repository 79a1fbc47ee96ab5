"""A trace format: JSON Lines of one call each, as a small in-house gateway might write them.

    {"chat": "a17", "at": 1719820800.0, "took": 3.2, "messages": […], "reply": "…", "in": 812, "out": 40}

To ship it: put the module into `loadgen/trace/formats/` and its FORMAT into the tuple in `registry.py`, the more
particular formats first. `loadgen trace import` then detects it; nothing else changes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report


def _detect(head: Head) -> bool:
    """Only what no other format has; the head is at most 64 KiB."""
    return isinstance(head.value, dict) and {"chat", "messages", "reply"} <= head.value.keys()


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """One family of agents a conversation. What cannot be used is counted with its place, never dropped in silence."""
    chats: dict[str, Agent] = {}
    for path in files:
        for number, line in enumerate(path.read_bytes().splitlines(), 1):
            with report.tolerate("line that is no call", f"{path}:{number}"):
                row = orjson.loads(line)
                if not row["messages"]:
                    report.skip("call without messages", f"{path}:{number}")
                    continue
                start = float(row["at"])
                call = Call(
                    prompt=row[
                        "messages"
                    ],  # the whole prompt; `keep` and `append` are found from one call to the next
                    answer={"role": "assistant", "content": row["reply"]},
                    start_s=start,
                    end_s=start + float(row["took"]),
                    input_tokens=row.get("in"),
                    output_tokens=row.get("out"),
                )
                chats.setdefault(str(row["chat"]), Agent(id=str(row["chat"]), calls=[])).calls.append(call)
    for agent in chats.values():
        agent.calls.sort(key=lambda call: call.start_s or 0.0)
        yield [agent]


FORMAT = Format(
    name="notes",
    title="the gateway's notes",
    fidelity="messages",
    lost="tools, reasoning, retries",
    detect=_detect,
    read=_read,
)
