"""Plain conversations: vLLM's multi-turn benchmark files, ShareGPT, and JSON lines of `messages`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from loadgen.trace.formats.base import Agent, Format, Head, Report
from loadgen.trace.formats.messages import assistant, from_openai, split_system, tool_call, tool_result
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
    """Also with tools: `function_call` (JSON of name and arguments), `observation`, and `tools` as JSON text."""
    for path in files:
        for where, row in _entries(path, report):
            messages: list[Message] = []
            for number, part in enumerate(get_list(row, "conversations")):
                message = _said(part, number, messages)
                if message is None:
                    report.skip("message of unknown shape", where)
                else:
                    messages.append(message)
            agent = _agent(get_text(row, "id") or where, messages)
            agent.tools = _tools(row)
            if agent.system is None:
                agent.system = get_text(row, "system")
            yield [agent]


def _said(part: Any, number: int, before: list[Message]) -> Message | None:
    """One entry as a message; a result belongs to the call before it. Null where its shape is unknown."""
    who, text = get_text(part, "from", "role") or "", get_text(part, "value", "content") or ""
    if who in ("observation", "tool"):
        calls = before[-1].get("tool_calls") if before else None
        return tool_result(calls[0]["id"] if calls else "", text)
    if who == "function_call":
        asked = _json(text)
        found = asked if isinstance(asked, list) else [asked]
        if not all(get_text(call, "name") for call in found):
            return None
        names = [f"call_{number}_{i}" for i in range(len(found))]
        calls = [
            tool_call(n, call["name"], call.get("arguments")) for n, call in zip(names, found, strict=True)
        ]
        return assistant("", calls)
    role = _SHAREGPT.get(who)
    return None if role is None else {"role": role, "content": text}


def _tools(row: Any) -> list[Any] | None:
    """Definitions in OpenAI's shape, of a list or of a list as JSON text."""
    tools = _json(get_text(row, "tools") or "null") or get_list(row, "tools")
    found = [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []
    return [tool if "function" in tool else {"type": "function", "function": tool} for tool in found] or None


def _json(text: str) -> Any:
    try:
        return orjson.loads(text)
    except orjson.JSONDecodeError:
        return None


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
