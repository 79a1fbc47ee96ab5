"""Cline (classic tasks and SDK sessions) and Roo: Anthropic messages beside a log of requests.

Classic and Roo: a task folder with `api_conversation_history.json` and `ui_messages.json` (usage of each request,
as JSON text in it). SDK: `<id>.messages.json` with usage on the messages themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.messages import from_anthropic, text_of
from loadgen.trace.formats.rows import (
    get_count,
    get_dict,
    get_list,
    get_number,
    get_text,
    json_document,
    seconds,
)
from loadgen.trace.formats.steps import calls_of
from loadgen.trace.model import Message

_RESULT = re.compile(r"\[\w+[^\n]*\] Result:")
"""How a user message begins that holds a tool's result, where tools are called in the text."""

Steps = list[tuple[list[Message], Any]]


def _sdk(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """`inputTokens` of a call counts cache reads; a compaction file is another state of the same session."""
    for path in files:
        document = json_document(path, report)
        agent = Agent(
            id=path.name.removesuffix(".json").removesuffix(".messages"),
            calls=[],
            system=get_text(document, "system_prompt"),
        )
        agent.kind = {"lead": "main", None: "main"}.get(
            get_text(document, "agent"), get_text(document, "agent") or "main"
        )
        steps: Steps = []
        last: float | None = None
        starts: dict[int, float | None] = {}
        for number, row in enumerate(get_list(document, "messages")):
            if not isinstance(row, dict) or get_text(row, "role") not in ("user", "assistant"):
                report.skip("message of unknown shape", f"{path} message {number}")
                continue
            starts[id(row)] = last
            last = seconds(row.get("ts")) or last
            steps.append((from_anthropic(str(row["role"]), row.get("content")), row))

        def fill(call: Call, row: Any, starts: dict[int, float | None] = starts) -> None:
            metrics = get_dict(row, "metrics")
            call.end_s, call.start_s = seconds(row.get("ts")), starts[id(row)]
            call.input_tokens, call.output_tokens = (
                get_count(metrics, "inputTokens"),
                get_count(metrics, "outputTokens"),
            )
            call.cached_tokens = get_count(metrics, "cacheReadTokens")

        agent.calls = calls_of(steps, fill)
        yield [agent]


def _classic(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    folders = {path.parent: None for path in files if path.name == "api_conversation_history.json"}
    for path in files:
        if path.parent not in folders:
            report.skip("task without api_conversation_history.json", str(path))
    for folder in folders:
        rows = json_document(folder / "api_conversation_history.json", report)
        rows = rows if isinstance(rows, list) else []
        shown = folder / "ui_messages.json"
        events = json_document(shown, report) if shown.is_file() else []
        requests = [
            r for row in (events if isinstance(events, list) else ()) if (r := _request(row)) is not None
        ]
        agent = Agent(id=folder.name, calls=[])
        with report.tolerate("malformed task", str(folder)):
            if requests and all(get_number(r, "at") is not None for r in requests):
                agent.calls = _placed(rows, requests, report, folder)
            else:
                agent.calls = _in_order(rows, requests, report, folder)
        yield [agent]


def _placed(rows: list[Any], requests: list[dict[str, Any]], report: Report, folder: Path) -> list[Call]:
    """Newer Cline: a request tells the place of the message before the one that it sent."""
    messages = [
        from_anthropic(str(row["role"]), row.get("content"))
        if get_text(row, "role") in ("user", "assistant")
        else []
        for row in rows
    ]
    skipped = sum(not found for found in messages)
    report.skip("message of unknown shape", str(folder), skipped)
    calls: list[Call] = []
    provider: str | None = None  # of the latest answer that tells it
    for number, request in enumerate(requests):
        asked = int(request["at"]) + 1
        following = requests[number + 1]["at"] if number + 1 < len(requests) else None
        row = rows[asked + 1] if asked + 1 < len(rows) and following != request["at"] else None
        if get_text(row, "role") != "assistant":
            row = None
            if get_count(request, "tokensOut") is None:
                report.skip("request that ended without an answer", str(folder))
                continue
            report.note(
                "answer that the task does not hold (its last one, or one before it was resumed)", str(folder)
            )
        left_out = get_list(request, "left_out")
        prompt = [
            message
            for place, found in enumerate(messages[: asked + 1])
            if not (len(left_out) == 2 and left_out[0] <= place <= left_out[1])
            for message in found
        ]
        call = Call(prompt=prompt, answer=None if row is None else messages[asked + 1][0])
        call.end_s = seconds(row.get("ts")) if isinstance(row, dict) else None
        provider = get_text(get_dict(row, "modelInfo"), "providerId") or request["provider"] or provider
        _usage(call, request, provider)
        calls.append(call)
    return calls


def _in_order(rows: list[Any], requests: list[dict[str, Any]], report: Report, folder: Path) -> list[Call]:
    """Roo, and Cline before: the i-th `api_req_started` is the i-th assistant message."""

    def ended(call: Call, row: Any) -> None:
        call.end_s = seconds(row.get("ts"))

    calls = calls_of(_visible(rows, report, folder), ended)
    if requests and len(requests) != len(calls):
        report.note("number of requests and of answers differ; usage is matched from the end", str(folder))
    for call, request in zip(reversed(calls), reversed(requests), strict=False):
        _usage(call, request, request["provider"])
        if get_number(request, "tokensIn") is None:
            report.note("request without usage", str(folder))
    return calls


def _usage(call: Call, request: dict[str, Any], provider: str | None) -> None:
    """`tokensIn` excludes the cache, but not where an OpenAI-compatible server counted."""
    parts = [get_count(request, name) for name in ("tokensIn", "cacheWrites", "cacheReads")]
    whole = provider == "openai" or get_text(request, "apiProtocol") == "openai"
    if parts[0] is not None:
        call.input_tokens = parts[0] if whole else sum(part or 0 for part in parts)
    call.output_tokens, call.cached_tokens = get_count(request, "tokensOut"), parts[2]
    call.start_s = seconds(request.get("ts"))
    if call.prompt and _RESULT.match(text_of(call.prompt[-1]["content"])):
        call.gap_kind = "tool"
    if call.end_s is not None and call.start_s is not None and call.end_s < call.start_s:
        call.end_s = None


def _visible(rows: Any, report: Report, folder: Path) -> Steps:
    """What was sent: Roo keeps messages that a condensation or truncation has hidden, and marks them."""
    found: Steps = []
    present = {
        get_text(row, "condenseId", "truncationId")
        for row in (rows if isinstance(rows, list) else ())
        if isinstance(row, dict)
    }
    for number, row in enumerate(rows if isinstance(rows, list) else ()):
        role = get_text(row, "role")
        if role not in ("user", "assistant"):
            report.skip("message of unknown shape", f"{folder} message {number}")
        elif row.get("isTruncationMarker") is True or {
            get_text(row, "condenseParent"),
            get_text(row, "truncationParent"),
        } & (present - {None}):
            report.skip(
                "message hidden by a condensation; the calls before it are not told apart any more",
                str(folder),
            )
        else:
            found.append((from_anthropic(role, row.get("content")), row))
    return found


def _request(row: Any) -> dict[str, Any] | None:
    if get_text(row, "say") != "api_req_started":
        return None
    try:
        inner = orjson.loads(get_text(row, "text") or "{}")
    except orjson.JSONDecodeError:
        inner = {}
    return {
        **(inner if isinstance(inner, dict) else {}),
        "ts": row.get("ts"),
        "at": get_number(row, "conversationHistoryIndex"),
        "left_out": row.get("conversationHistoryDeletedRange"),
        "provider": get_text(get_dict(row, "modelInfo"), "providerId"),
    }


def _is_sdk(head: Head) -> bool:
    start = head.data[:600]
    return (
        b'"messages"' in start
        and b'"sessionId"' in start
        and b'"version"' in start
        and head.path.suffix == ".json"
    )


SDK = Format(
    name="cline",
    title="Cline SDK and CLI sessions",
    fidelity="messages",
    lost="tool schemas, TTFT; what a compaction replaced is in other files",
    detect=_is_sdk,
    read=_sdk,
)
CLASSIC = Format(
    name="cline-task",
    title="Cline and Roo tasks (VS Code)",
    fidelity="messages",
    lost="system prompt, tool schemas, TTFT, a task's last answer; times of answers in older tasks",
    detect=lambda head: head.path.name in ("api_conversation_history.json", "ui_messages.json"),
    read=_classic,
)
