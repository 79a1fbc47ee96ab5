"""Cline (classic tasks and SDK sessions) and Roo: Anthropic messages beside a log of requests.

Classic and Roo: a task folder with `api_conversation_history.json` and `ui_messages.json` (usage of each request,
as JSON text in it). SDK: `<id>.messages.json` with usage on the messages themselves.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.messages import from_anthropic
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
    """Requests and answers are matched in order: the i-th `api_req_started` is the i-th assistant message."""
    folders = {path.parent: None for path in files if path.name == "api_conversation_history.json"}
    for path in files:
        if path.parent not in folders:
            report.skip("task without api_conversation_history.json", str(path))
    for folder in folders:
        rows = json_document(folder / "api_conversation_history.json", report)
        shown = folder / "ui_messages.json"
        events = json_document(shown, report) if shown.is_file() else []
        requests = [
            r for row in (events if isinstance(events, list) else ()) if (r := _request(row)) is not None
        ]
        agent = Agent(id=folder.name, calls=calls_of(_visible(rows, report, folder)))
        if requests and len(requests) != len(agent.calls):
            report.note(
                "number of requests and of answers differ; usage is matched from the end", str(folder)
            )
        for call, request in zip(reversed(agent.calls), reversed(requests), strict=False):
            parts = [get_count(request, name) for name in ("tokensIn", "cacheWrites", "cacheReads")]
            call.input_tokens = None if parts[0] is None else sum(part or 0 for part in parts)
            call.output_tokens, call.cached_tokens = get_count(request, "tokensOut"), parts[2]
            call.start_s = seconds(request.get("ts"))
            if get_number(request, "tokensIn") is None:
                report.note("request without usage", str(folder))
        yield [agent]


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
    return {**(inner if isinstance(inner, dict) else {}), "ts": row.get("ts")}


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
    lost="system prompt, tool schemas, times of answers, TTFT",
    detect=lambda head: head.path.name in ("api_conversation_history.json", "ui_messages.json"),
    read=_classic,
)
