"""Gemini CLI: `~/.gemini/tmp/<project>/chats/`, a `session-*.jsonl` a session (0.61) or a `.json` (older versions).

In the line form a record may rewrite an id (the last one holds), set fields (`$set`, also the whole list of messages:
the context at the start, all of it when a session is resumed) or rewind (`$rewindTo`). A sub-agent has a file of its
own in a folder named after the session; the tool call that started it names it (`agentId`).
`input` counts what was cached; `thoughts` are not part of `output` and are not sent again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.messages import assistant, text_of, tool_call, tool_result
from loadgen.trace.formats.rows import (
    get_count,
    get_dict,
    get_list,
    get_text,
    json_document,
    json_rows,
    seconds,
)
from loadgen.trace.model import Message

Row = dict[str, Any]


@dataclass(slots=True)
class _Chat:
    """What a file tells: all versions of its rows, and for every call the rows that were there before it."""

    rows: dict[str, Row] = field(default_factory=dict)
    now: list[str] = field(default_factory=list)
    before: dict[str, list[str]] = field(default_factory=dict)
    header: Row = field(default_factory=dict)

    def add(self, row: Row) -> None:
        name = str(row["id"])
        if name not in self.now:
            if get_text(row, "type") == "gemini" and name not in self.before:
                self.before[name] = list(self.now)
            self.now.append(name)
        self.rows[name] = row

    def restore(self, rows: list[Any]) -> None:
        """A whole list: what a resumed session begins with. Of rows that are known it tells less than they did."""
        self.now = []
        for row in rows:
            if (name := get_text(row, "id")) is None or get_text(row, "type") is None:
                continue
            if name in self.rows or not get_dict(row, "tokens"):
                self.rows.setdefault(name, row)
                self.now.append(name)
            else:
                self.add(row)


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    agents: dict[str, Agent] = {}
    tasks: dict[str, tuple[str, int, str]] = {}  # sub-agent -> parent's session, call, tool call
    for path in files:
        chat = _lines(path, report) if path.suffix == ".jsonl" else _document(path, report)
        agent = Agent(id=get_text(chat.header, "sessionId") or path.stem, calls=[])
        agent.kind = "sub" if get_text(chat.header, "kind") == "subagent" else "main"
        with report.tolerate("malformed session", str(path)):
            _calls(agent, chat, tasks, report, str(path))
        name = agent.id
        while name in agents:
            name += "'"
        agents[name] = agent
    for name, agent in agents.items():
        if name in tasks and tasks[name][0] in agents:
            parent, number, agent.call_id = tasks[name]
            agent.parent, agent.kind = (parent, number), "sub"
    for name in agents:
        if agents[name].parent is None:
            yield list(_family(name, agents))


def _family(root: str, agents: dict[str, Agent]) -> Iterator[Agent]:
    queue = [root]
    while queue:
        name = queue.pop(0)
        yield agents[name]
        queue += [other for other, agent in agents.items() if agent.parent and agent.parent[0] == name]


def _document(path: Path, report: Report) -> _Chat:
    document = json_document(path, report)
    chat = _Chat(header=document if isinstance(document, dict) else {})
    for number, row in enumerate(get_list(document, "messages")):
        if isinstance(row, dict) and get_text(row, "type"):
            chat.add({**row, "id": get_text(row, "id") or f"#{number}"})
        else:
            report.skip("message of unknown shape", f"{path} message {number}")
    return chat


def _lines(path: Path, report: Report) -> _Chat:
    chat = _Chat()
    for number, row in json_rows(path, report):
        if isinstance(row.get("$set"), dict):
            chat.header.update({key: value for key, value in row["$set"].items() if key != "messages"})
            if isinstance(messages := row["$set"].get("messages"), list):
                chat.restore(messages)
        elif (target := get_text(row, "$rewindTo")) is not None:
            if target in chat.now:
                chat.now = chat.now[: chat.now.index(target)]
            report.note("rewind", f"{path}:{number}")
        elif get_text(row, "type") and get_text(row, "id"):
            chat.add(row)
        elif "sessionId" in row:
            chat.header.update(row)
        else:
            report.skip("row of unknown shape", f"{path}:{number}")
    return chat


def _calls(
    agent: Agent, chat: _Chat, tasks: dict[str, tuple[str, int, str]], report: Report, where: str
) -> None:
    for row in chat.rows.values():
        if (kind := get_text(row, "type")) not in ("user", "gemini"):
            report.skip(f"message of type {str(kind)[:40]}", where)
    for name, names in chat.before.items():
        row, before = chat.rows[name], [chat.rows[other] for other in names]
        tokens = get_dict(row, "tokens")
        output, thought = get_count(tokens, "output"), get_count(tokens, "thoughts")
        prompt = _prompt(before)
        if not prompt:
            report.note("call whose prompt is not in the log; an empty message stands for it", where)
            prompt = [{"role": "user", "content": ""}]
        answer = _answer(row, thoughts=True)
        for tool in get_list(row, "toolCalls"):
            if (child := get_text(tool, "agentId")) is not None:
                tasks[child] = (agent.id, len(agent.calls), get_text(tool, "id") or "")
        agent.calls.append(
            Call(
                prompt=prompt,
                answer=answer,
                start_s=_last(before),
                end_s=seconds(row.get("timestamp")),
                input_tokens=get_count(tokens, "input"),
                output_tokens=None if output is None else output + (thought or 0),
                reasoning_tokens=thought,
                cached_tokens=get_count(tokens, "cached"),
                stop="tool_calls" if answer.get("tool_calls") else "stop",
            )
        )


def _last(rows: list[Row]) -> float | None:
    """When the last input was there: the row's time, or that of its last tool."""
    if not rows:
        return None
    times = [rows[-1], *get_list(rows[-1], "toolCalls")]
    found = [
        at for row in times if isinstance(row, dict) and (at := seconds(row.get("timestamp"))) is not None
    ]
    return max(found, default=None)


def _prompt(rows: list[Row]) -> list[Message]:
    """Rows as messages; user rows that follow each other are one message of several parts, as they are sent."""
    answered = {
        get_text(get_dict(part, "functionResponse"), "id")
        for row in rows
        if get_text(row, "type") == "user"
        for part in get_list(row, "content")
    }
    messages: list[Message] = []
    for row in rows:
        if get_text(row, "type") == "gemini":
            messages.append(_answer(row, thoughts=False))
            # older versions keep results with the calls alone, newer ones in a user row, too
            messages += [
                tool_result(get_text(tool, "id") or "", _result(get_list(tool, "result"), tool))
                for tool in get_list(row, "toolCalls")
                if isinstance(tool, dict) and get_text(tool, "id") not in answered
            ]
        elif get_text(row, "type") == "user":
            parts = get_list(row, "content")
            responses = [found for part in parts if (found := get_dict(part, "functionResponse"))]
            messages += [
                tool_result(get_text(found, "id") or "", _result([{"functionResponse": found}], found))
                for found in responses
            ]
            text = text_of(row.get("content"))
            if text or not responses:
                _say(messages, text)
    return messages


def _say(messages: list[Message], text: str) -> None:
    if messages and messages[-1]["role"] == "user":
        earlier = messages[-1]["content"]
        parts = earlier if isinstance(earlier, list) else [{"type": "text", "text": earlier}]
        messages[-1] = {"role": "user", "content": [*parts, {"type": "text", "text": text}]}
    else:
        messages.append({"role": "user", "content": text})


def _answer(row: Row, *, thoughts: bool) -> Message:
    parts = [part for part in get_list(row, "content") if isinstance(part, dict)]
    tools = [tool for tool in get_list(row, "toolCalls") if isinstance(tool, dict)]
    if not tools:  # a resumed session tells them as parts
        tools = [found for part in parts if (found := get_dict(part, "functionCall"))]
    calls = [
        tool_call(get_text(tool, "id") or "", get_text(tool, "name") or "tool", tool.get("args"))
        for tool in tools
    ]
    text = text_of([part for part in parts if not part.get("thought")] if parts else row.get("content"))
    told = [get_text(t, "description", "text") or "" for t in get_list(row, "thoughts")] if thoughts else []
    return assistant(text, calls or None, "\n".join(filter(None, told)))


def _result(parts: list[Any], tool: Row) -> str:
    """Results are parts with `functionResponse`, or text."""
    texts = []
    for part in parts:
        response = get_dict(get_dict(part, "functionResponse"), "response")
        texts.append(get_text(response, "output", "error") or text_of(part))
    return "\n".join(filter(None, texts)) or text_of(tool.get("result"))


def _detect(head: Head) -> bool:
    return b'"sessionId"' in head.data and (
        b'"projectHash"' in head.data or b'"type":"gemini"' in head.data.replace(b": ", b":")
    )


FORMAT = Format(
    name="gemini",
    title="Gemini CLI chats",
    fidelity="messages",
    lost="system prompt, tool schemas, TTFT, the calls of a compression; a start is the last input's time; in `.json` "
    "files also the context at the start, helpers' calls, and the end of an answer without text",
    detect=_detect,
    read=_read,
)
