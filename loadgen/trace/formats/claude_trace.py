"""Logs of single requests with their bodies, as claude-trace writes them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from loadgen.trace.formats.base import Agent, Call, Format, Report
from loadgen.trace.formats.chains import Logged, families
from loadgen.trace.formats.messages import anthropic_answer, anthropic_body
from loadgen.trace.formats.rows import (
    get_count,
    get_dict,
    get_list,
    get_text,
    logged_rows,
    seconds,
)
from loadgen.trace.model import Message


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """Pairs of request and response; the first system block's billing nonce is left out of the prompt."""
    logged = []
    for path in files:
        for where, row in logged_rows(path, report):
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
                    # `response.timestamp` is that of the headers; the pair is written when the body has come
                    end_s=seconds(row.get("logged_at")) if answer is not None else None,
                    input_tokens=None if plain is None else plain + (read or 0) + (made or 0),
                    output_tokens=get_count(usage, "output_tokens"),
                    cached_tokens=read,
                    stop=stop,
                )
                key = _session(get_text(get_dict(body, "metadata"), "user_id") or "")
                label = "utility" if not tools and _is_small(body) else "main"
                logged.append(Logged(call, key or path.stem, system, tools, label))
    yield from families(logged, "claude-trace")


def _is_small(body: dict[str, Any]) -> bool:
    """Titles, quota probes, paths in a command: a short answer, or the small model."""
    return (get_count(body, "max_tokens") or 65) <= 64 or "haiku" in (get_text(body, "model") or "").lower()


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


FORMAT = Format(
    name="claude-trace",
    title="claude-trace request pairs",
    fidelity="bodies",
    lost="TTFT (chunks are not timed); the billing nonce of the first system block",
    detect=lambda head: any(
        isinstance(row.get("request"), dict) and "response" in row and "logged_at" in row for row in head.rows
    ),
    read=_read,
)
