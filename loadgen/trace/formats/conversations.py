"""Plain conversations: vLLM's multi-turn benchmark files, ShareGPT, and JSON lines of `messages`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loadgen.trace.formats.base import Agent, Format, Head, Report
from loadgen.trace.formats.messages import from_openai, split_system
from loadgen.trace.formats.rows import get_list, get_text, json_document, json_rows
from loadgen.trace.formats.steps import calls_of
from loadgen.trace.model import Message

_SHAREGPT = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "chatgpt": "assistant",
    "bing": "assistant",
    "bard": "assistant",
    "system": "system",
}


def _entries(path: Path, report: Report) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".jsonl":
        yield from ((f"{path}:{number}", row) for number, row in json_rows(path, report))
    else:
        document = json_document(path, report)
        yield from (
            (f"{path} entry {number}", row)
            for number, row in enumerate(document if isinstance(document, list) else [])
        )


def _vllm(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    for path in files:
        for where, row in _entries(path, report):
            messages = [m for r in get_list(row, "messages") if (m := from_openai(r)) is not None]
            name = (
                str(row.get("id"))
                if isinstance(row, dict) and isinstance(row.get("id"), str | int)
                else where
            )
            yield [_agent(name, messages)]


def _sharegpt(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    for path in files:
        for where, row in _entries(path, report):
            messages: list[Message] = []
            for part in get_list(row, "conversations"):
                role = _SHAREGPT.get(get_text(part, "from", "role") or "")
                if role is None:
                    report.skip("message of unknown shape", where)
                else:
                    messages.append({"role": role, "content": get_text(part, "value", "content") or ""})
            yield [_agent(get_text(row, "id") or where, messages)]


def _agent(name: str, messages: list[Message]) -> Agent:
    system, messages = split_system(messages)
    return Agent(id=name, calls=calls_of([([message], None) for message in messages]), system=system)


def _starts(head: Head, key: bytes) -> bool:
    return key in head.data and head.data.lstrip()[:1] in (b"[", b"{")


VLLM = Format(
    name="vllm",
    title="vLLM multi-turn conversations",
    fidelity="messages",
    lost="times, token counts, tool calls' ids where the file has none",
    detect=lambda head: (
        _starts(head, b'"messages"')
        and b'"role"' in head.data
        and (head.data.lstrip()[:1] == b"[" or (bool(head.rows) and "messages" in head.rows[0]))
    ),
    read=_vllm,
)
SHAREGPT = Format(
    name="sharegpt",
    title="ShareGPT conversations",
    fidelity="messages",
    lost="times, token counts",
    detect=lambda head: (
        _starts(head, b'"conversations"') and (b'"from"' in head.data or b'"value"' in head.data)
    ),
    read=_sharegpt,
)
