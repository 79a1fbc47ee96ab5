"""Logs of single requests with their bodies: LiteLLM's standard payload and claude-trace."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.chains import Logged, families
from loadgen.trace.formats.messages import anthropic_answer, anthropic_body, from_openai, split_system
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


def _rows(path: Path, report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    if path.suffix == ".json":
        document = json_document(path, report)
        for number, row in enumerate(document if isinstance(document, list) else [document]):
            if isinstance(row, dict):
                yield f"{path} entry {number}", row
    else:
        for number, row in json_rows(path, report):
            yield f"{path}:{number}", row


def _litellm(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """Sessions by `litellm_session_id`, else trace id. Spend logs hold no messages unless asked to."""
    logged = []
    for path in files:
        for where, row in _rows(path, report):
            with report.tolerate("malformed row", where):
                rows = row.get("messages")
                prompt = (
                    [m for r in rows if (m := from_openai(r)) is not None] if isinstance(rows, list) else []
                )
                if isinstance(rows, str) and rows:
                    prompt = [{"role": "user", "content": rows}]
                system, prompt = split_system(prompt)
                if not prompt:
                    report.note("request without its messages; an empty message stands for the prompt", where)
                    prompt = [{"role": "user", "content": ""}]
                choice = next(iter(get_list(row.get("response"), "choices")), None)
                details = get_dict(get_dict(get_dict(row, "response"), "usage"), "prompt_tokens_details")
                failed = get_text(row, "status") == "failure"
                answer = from_openai(get_dict(choice, "message"))
                call = Call(
                    prompt=prompt,
                    answer=answer if answer is not None and answer["role"] == "assistant" else None,
                    start_s=seconds(row.get("startTime")),
                    first_s=seconds(row.get("completionStartTime")),
                    end_s=seconds(row.get("endTime")),
                    input_tokens=get_count(row, "prompt_tokens"),
                    output_tokens=get_count(row, "completion_tokens"),
                    cached_tokens=get_count(details, "cached_tokens"),
                    stop="error" if failed else get_text(choice, "finish_reason"),
                )
                if call.first_s is not None and call.first_s == call.end_s:
                    call.first_s = None  # a request that was not streamed
                metadata = get_dict(row, "metadata")
                key = (
                    get_text(row, "litellm_session_id", "session_id")
                    or get_text(metadata, "litellm_session_id", "session_id")
                    or get_text(row, "trace_id")
                    or ""
                )
                logged.append(
                    Logged(call, key, system, get_list(get_dict(row, "model_parameters"), "tools") or None)
                )
    yield from families(logged, "litellm")


def _claude_trace(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """Pairs of request and response; the first system block's billing nonce is left out of the prompt."""
    logged = []
    for path in files:
        for where, row in _rows(path, report):
            with report.tolerate("malformed pair", where):
                request, response = get_dict(row, "request"), get_dict(row, "response")
                body = get_dict(request, "body")
                if (
                    "/messages" not in (get_text(request, "url") or "")
                    or not get_list(body, "messages")
                    or "count_tokens" in request["url"]
                ):
                    report.skip("request that is no model call", where)
                    continue
                body = {**body, "system": _without_nonce(body.get("system"))}
                system, tools, prompt = anthropic_body(body)
                answer, usage, stop = _answer(response, report, where)
                read, made = (
                    get_count(usage, "cache_read_input_tokens"),
                    get_count(usage, "cache_creation_input_tokens"),
                )
                plain = get_count(usage, "input_tokens")
                call = Call(
                    prompt=prompt,
                    answer=answer,
                    start_s=seconds(request.get("timestamp")),
                    end_s=seconds(response.get("timestamp")),
                    input_tokens=None if plain is None else plain + (read or 0) + (made or 0),
                    output_tokens=get_count(usage, "output_tokens"),
                    cached_tokens=read,
                    stop=stop,
                )
                key = _session(get_text(get_dict(body, "metadata"), "user_id") or "")
                label = "utility" if (get_count(body, "max_tokens") or 65) <= 64 and not tools else "main"
                logged.append(Logged(call, key or path.stem, system, tools, label))
    yield from families(logged, "claude-trace")


def _session(user_id: str) -> str:
    """`user_<hash>_account_<uuid>_session_<uuid>`, or JSON text with `session_id`."""
    if user_id.startswith("{"):
        try:
            return get_text(orjson.loads(user_id), "session_id") or ""
        except orjson.JSONDecodeError:
            return ""
    return user_id.partition("_session_")[2]


def _without_nonce(system: Any) -> Any:
    if isinstance(system, list):
        return [
            block
            for block in system
            if not (get_text(block, "text") or "").startswith("x-anthropic-billing-header")
        ]
    return system


def _answer(
    response: dict[str, Any], report: Report, where: str
) -> tuple[Message | None, dict[str, Any], str | None]:
    body = get_dict(response, "body")
    if body.get("type") == "message":
        return (
            anthropic_answer(get_list(body, "content")),
            get_dict(body, "usage"),
            get_text(body, "stop_reason"),
        )
    if text := get_text(response, "body_raw"):
        return _from_events(text)
    report.note("request without a response", where)
    return None, {}, "aborted"


def _from_events(text: str) -> tuple[Message | None, dict[str, Any], str | None]:
    """The answer of a stream of server-sent events; without `message_stop` it was aborted."""
    blocks: dict[int, dict[str, Any]] = {}
    usage: dict[str, Any] = {}
    stop: str | None = None
    whole = False
    for line in text.splitlines():
        if not line.startswith("data:"):
            continue
        try:
            event = orjson.loads(line[5:])
        except orjson.JSONDecodeError:
            continue
        kind, index = get_text(event, "type"), get_count(event, "index") or 0
        if kind == "message_start":
            usage.update(get_dict(get_dict(event, "message"), "usage"))
        elif kind == "content_block_start":
            blocks[index] = {**get_dict(event, "content_block"), "_json": ""}
        elif kind == "content_block_delta":
            delta, block = get_dict(event, "delta"), blocks.setdefault(index, {"type": "text", "_json": ""})
            for field in ("text", "thinking"):
                if piece := get_text(delta, field):
                    block[field] = (get_text(block, field) or "") + piece
            block["_json"] += get_text(delta, "partial_json") or ""
        elif kind == "message_delta":
            usage.update(get_dict(event, "usage"))
            stop = get_text(get_dict(event, "delta"), "stop_reason") or stop
        elif kind == "message_stop":
            whole = True
    for block in blocks.values():
        if pieces := block.pop("_json"):
            block["input"] = pieces
    return anthropic_answer(block for _, block in sorted(blocks.items())), usage, stop if whole else "aborted"


def _detect_litellm(head: Head) -> bool:
    row = (
        head.rows[0]
        if head.rows
        else head.value[0]
        if isinstance(head.value, list) and head.value
        else head.value
    )
    return (
        isinstance(row, dict) and "call_type" in row and ("startTime" in row or "completionStartTime" in row)
    )


LITELLM = Format(
    name="litellm",
    title="LiteLLM standard logging payload",
    fidelity="messages",
    lost="tools unless logged as parameters; messages unless the proxy stores prompts",
    detect=_detect_litellm,
    read=_litellm,
)
CLAUDE_TRACE = Format(
    name="claude-trace",
    title="claude-trace request pairs",
    fidelity="bodies",
    lost="TTFT (chunks are not timed); the billing nonce of the first system block",
    detect=lambda head: any(
        isinstance(row.get("request"), dict) and "response" in row and "logged_at" in row for row in head.rows
    ),
    read=_claude_trace,
)
