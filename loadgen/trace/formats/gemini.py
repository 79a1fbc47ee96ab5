"""Gemini CLI: `~/.gemini/tmp/<project>/chats/session-*.json` or `.jsonl`.

`input` counts what was cached; `thoughts` are not part of `output`. In the line form a record may rewrite an id
(the last one holds), set fields (`$set`) or rewind (`$rewindTo`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    for path in files:
        session = _lines(path, report) if path.suffix == ".jsonl" else json_document(path, report)
        agent = Agent(id=get_text(session, "sessionId") or path.stem, calls=[])
        agent.kind = "sub" if get_text(session, "kind") == "subagent" else "main"
        with report.tolerate("malformed session", str(path)):
            _calls(agent, get_list(session, "messages"), report, str(path))
        yield [agent]


def _lines(path: Path, report: Report) -> dict[str, Any]:
    session: dict[str, Any] = {}
    messages: dict[str, dict[str, Any]] = {}
    for number, row in json_rows(path, report):
        if isinstance(row.get("$set"), dict):
            session.update(row["$set"])
        elif (target := get_text(row, "$rewindTo")) is not None:
            names = list(messages)
            if target in messages:
                for name in names[names.index(target) :]:
                    del messages[name]
            report.note("rewind; the calls that it took back are left out", f"{path}:{number}")
        elif get_text(row, "type") and get_text(row, "id"):
            messages[str(row["id"])] = row
        elif "sessionId" in row:
            session.update(row)
        else:
            report.skip("row of unknown shape", f"{path}:{number}")
    return {**session, "messages": list(messages.values())}


def _calls(agent: Agent, rows: list[Any], report: Report, where: str) -> None:
    prompt: list[Message] = []
    last: float | None = None
    for row in rows:
        kind, at = get_text(row, "type"), seconds(row.get("timestamp") if isinstance(row, dict) else None)
        if kind == "user":
            prompt.append({"role": "user", "content": text_of(row.get("content"))})
            last = at or last
        elif kind == "gemini":
            tools = [tool for tool in get_list(row, "toolCalls") if isinstance(tool, dict)]
            calls = [
                tool_call(get_text(tool, "id") or "", get_text(tool, "name") or "tool", tool.get("args"))
                for tool in tools
            ]
            thoughts = "\n".join(
                filter(None, (get_text(t, "description", "text") or "" for t in get_list(row, "thoughts")))
            )
            answer = assistant(text_of(row.get("content")), calls or None, thoughts)
            tokens = get_dict(row, "tokens")
            output, thought = get_count(tokens, "output"), get_count(tokens, "thoughts")
            if not prompt:
                report.note("call whose prompt is not in the log; an empty message stands for it", where)
                prompt.append({"role": "user", "content": ""})
            agent.calls.append(
                Call(
                    prompt=list(prompt),
                    answer=answer,
                    start_s=last,
                    end_s=at,
                    input_tokens=get_count(tokens, "input"),
                    output_tokens=None if output is None else output + (thought or 0),
                    reasoning_tokens=thought,
                    cached_tokens=get_count(tokens, "cached"),
                    stop="tool_calls" if calls else "stop",
                )
            )
            prompt.append(answer)
            ended = [t for tool in tools if (t := seconds(tool.get("timestamp"))) is not None]
            prompt.extend(tool_result(get_text(tool, "id") or "", _result(tool)) for tool in tools)
            last = max([t for t in (at, *ended) if t is not None], default=last)
        else:
            report.skip(f"message of type {str(kind)[:40]}", where)


def _result(tool: dict[str, Any]) -> str:
    """Results are parts with `functionResponse`, or text."""
    texts = []
    for part in get_list(tool, "result"):
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
    lost="system prompt, tool schemas, TTFT; request start is the last input's time",
    detect=_detect,
    read=_read,
)
