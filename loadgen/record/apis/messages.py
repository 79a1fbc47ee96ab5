"""Anthropic Messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from loadgen.record.apis.base import Fragments, Json, Prompt, Reply, assistant, canonical, dumps, error_text
from loadgen.record.apis.base import function_call as call_of
from loadgen.record.sse import Event
from loadgen.trace.model import Message

name = "messages"


def prompt(body: Json) -> Prompt:
    notes: list[str] = []
    messages: list[Message] = []
    for message in body["messages"]:
        messages += _messages(message)
    return Prompt(
        model=str(body.get("model") or ""),
        system=_system(body.get("system")),
        tools=_tools(body.get("tools") or [], notes),
        messages=messages,
        max_tokens=body.get("max_tokens"),
        stream=bool(body.get("stream")),
        notes=notes,
    )


def _system(system: Any) -> str | None:
    """Blocks are joined without a separator, as vLLM joins them."""
    if isinstance(system, list):
        system = "".join(block.get("text", "") for block in system)
    return system or None


def _tools(tools: list[Json], notes: list[str]) -> list[Json]:
    result = []
    for tool in tools:
        if "input_schema" not in tool:
            notes.append(f"tool {tool.get('name')!r} runs at the provider and has no schema: left out")
            continue
        function = {
            "name": tool["name"],
            "description": tool.get("description", ""),
            "parameters": tool["input_schema"],
        }
        result.append({"type": "function", "function": function})
    return result


def _messages(message: Json) -> list[Message]:
    """One Anthropic message as chat messages: each tool result is a message of its own, in the given order."""
    content = message["content"]
    if isinstance(content, str):
        return [canonical({"role": message["role"], "content": content})]
    if message["role"] == "assistant":
        return [_assistant(content)]
    result: list[Message] = []
    parts: list[Json] = []

    def flush() -> None:
        if parts:
            result.append(canonical({"role": message["role"], "content": list(parts)}))
            parts.clear()

    for block in content:
        if block.get("type") == "tool_result":
            flush()
            result.append(_tool_result(block))
        else:
            parts.append(_part(block))
    flush()
    return result


def _part(block: Json) -> Json:
    if block.get("type") == "text":
        return {"type": "text", "text": block.get("text", "")}
    source = block.get("source") or {}
    if block.get("type") == "image" and source.get("type") in ("base64", "url"):
        url = source.get("url") or f"data:{source.get('media_type')};base64,{source.get('data')}"
        return {"type": "image_url", "image_url": {"url": url}}
    return {key: value for key, value in block.items() if key != "cache_control"}


def _tool_result(block: Json) -> Message:
    content = block.get("content") or ""
    if isinstance(content, list):
        content = [_part(part) for part in content]
        if all(part.get("type") == "text" for part in content):
            content = "\n".join(part["text"] for part in content)
    return canonical({"role": "tool", "tool_call_id": block.get("tool_use_id", ""), "content": content})


def _assistant(blocks: Iterable[Json]) -> Message:
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[Json] = []
    raw: list[Json] = []
    for block in blocks:
        match block.get("type"):
            case "text":
                texts.append(block.get("text", ""))
            case "tool_use":
                calls.append(
                    call_of(block.get("id", ""), block.get("name", ""), dumps(block.get("input") or {}))
                )
            case kind:
                if kind == "thinking":
                    thoughts.append(block.get("thinking", ""))
                raw.append({key: value for key, value in block.items() if key != "cache_control"})
    return assistant("".join(texts), reasoning="".join(thoughts), calls=calls, raw=raw)


def whole(body: Json) -> Reply:
    reply = Reply(
        message=_assistant(body["content"]) if body.get("content") is not None else None,
        response_id=body.get("id"),
        stop=body.get("stop_reason"),
        finished=body.get("type") == "message",
        error=error_text(body),
    )
    _usage(reply, body.get("usage") or {})
    return reply


def stream(events: Iterable[Event]) -> Reply:
    reply = Reply()
    usage: Json = {}
    blocks: dict[int, tuple[Json, dict[str, Fragments]]] = {}
    for event in events:
        chunk = orjson.loads(event.data)
        match chunk.get("type"):
            case "message_start":
                reply.response_id = chunk["message"].get("id")
                usage |= chunk["message"].get("usage") or {}
            case "content_block_start":
                blocks[chunk["index"]] = (chunk["content_block"], {})
                if chunk["content_block"].get("type") == "redacted_thinking":
                    reply.token_at(event.at_ns, text=False)
            case "content_block_delta":
                _delta(reply, event.at_ns, chunk["delta"], blocks.setdefault(chunk["index"], ({}, {}))[1])
            case "message_delta":
                reply.stop = (chunk.get("delta") or {}).get("stop_reason") or reply.stop
                usage |= {
                    key: value for key, value in (chunk.get("usage") or {}).items() if value is not None
                }
            case "message_stop":
                reply.finished = True
            case "error":
                reply.error = error_text(chunk)
    _usage(reply, usage)
    if blocks or reply.finished:
        reply.message = _assistant(_joined(block, pieces) for _, (block, pieces) in sorted(blocks.items()))
    return reply


_FIELD = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "input_json_delta": "partial_json",
    "signature_delta": "signature",
}


def _delta(reply: Reply, at_ns: int, delta: Json, pieces: dict[str, Fragments]) -> None:
    field = _FIELD.get(delta.get("type", ""))
    if field is None or not delta.get(field):
        return
    pieces.setdefault(field, Fragments()).add(delta[field])
    if field != "signature":
        reply.token_at(at_ns, text=field == "text")


def _joined(block: Json, pieces: dict[str, Fragments]) -> Json:
    block = block | {
        field: block.get(field, "") + pieces[field].text() for field in pieces if field != "partial_json"
    }
    if "partial_json" in pieces:
        try:
            block["input"] = orjson.loads(pieces["partial_json"].text())
        except orjson.JSONDecodeError:  # cut in mid-call
            block["input"] = {"partial_json": pieces["partial_json"].text()}
    return block


def _usage(reply: Reply, usage: Json) -> None:
    """The prompt is what was read anew, what was written to the cache and what was read from it."""
    if usage.get("input_tokens") is not None:
        reply.input_tokens = (
            usage["input_tokens"]
            + (usage.get("cache_creation_input_tokens") or 0)
            + (usage.get("cache_read_input_tokens") or 0)
        )
    reply.output_tokens = usage.get("output_tokens")
    reply.cached_tokens = usage.get("cache_read_input_tokens")
