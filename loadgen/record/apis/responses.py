"""OpenAI Responses."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from loadgen.record.apis.base import Fragments, Json, Prompt, Reply, assistant, canonical, dumps, error_text
from loadgen.record.apis.base import function_call as call_of
from loadgen.record.sse import Event
from loadgen.trace.model import Message

name = "responses"


def prompt(body: Json) -> Prompt:
    notes: list[str] = []
    given = body["input"]
    items = [{"role": "user", "content": given}] if isinstance(given, str) else given
    return Prompt(
        model=str(body.get("model") or ""),
        system=body.get("instructions") or None,
        tools=_tools(body.get("tools") or [], notes),
        messages=messages(items, notes),
        max_tokens=body.get("max_output_tokens"),
        stream=bool(body.get("stream")),
        previous=body.get("previous_response_id"),
        notes=notes,
    )


def _tools(tools: list[Json], notes: list[str]) -> list[Json]:
    """Functions keep their schema; a custom tool takes one string; tools that run at the provider are left out."""
    result = []
    for tool in tools:
        if tool.get("type") == "namespace":
            result += _tools(tool.get("tools") or [], notes)
            continue
        function = {"name": tool.get("name", ""), "description": tool.get("description") or ""}
        match tool.get("type"):
            case "function":
                function["parameters"] = tool.get("parameters") or {}
            case "custom":
                function["description"] += "".join(
                    f"\n{part}" for part in ((tool.get("format") or {}).get("definition"),) if part
                )
                function["parameters"] = {
                    "type": "object",
                    "properties": {"input": {"type": "string"}},
                    "required": ["input"],
                }
            case kind:
                notes.append(f"tool of type {kind!r} runs at the provider: left out")
                continue
        result.append({"type": "function", "function": function})
    return result


def messages(items: Iterable[Json], notes: list[str]) -> list[Message]:
    """Input or output items as chat messages; what one answer consists of is one assistant message."""
    result: list[Message] = []
    answer = _Answer()
    for item in items:
        if answer.takes(item):
            continue
        if message := answer.message():
            result.append(message)
            answer = _Answer()
        match item.get("type", "message"):
            case "message":
                result.append(canonical({"role": item["role"], "content": _content(item["content"])}))
            case "function_call_output" | "custom_tool_call_output" | "local_shell_call_output":
                output = item.get("output") or ""
                content = output if isinstance(output, str) else _content(output)
                if not isinstance(content, str | list):
                    content = dumps(content)
                result.append(
                    canonical({"role": "tool", "tool_call_id": item.get("call_id", ""), "content": content})
                )
            case kind:
                notes.append(f"input item of type {kind!r}: kept as raw, not part of a chat prompt")
    if message := answer.message():
        result.append(message)
    return result


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content
    parts: list[Json] = []
    for part in content:
        match part.get("type"):
            case "input_text" | "output_text" | "text" | "summary_text":
                parts.append({"type": "text", "text": part.get("text", "")})
            case "refusal":
                parts.append({"type": "text", "text": part.get("refusal", "")})
            case "input_image":
                parts.append({"type": "image_url", "image_url": {"url": part.get("image_url") or ""}})
            case _:
                parts.append(part)
    if parts and all(part.get("type") == "text" for part in parts) and len(parts) == 1:
        return parts[0]["text"]
    return parts


class _Answer:
    """Gathers the items that one answer of the model left behind."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._thoughts: list[str] = []
        self._calls: list[Json] = []
        self._raw: list[Json] = []

    def takes(self, item: Json) -> bool:
        match item.get("type", "message"):
            case "message" if item.get("role") == "assistant":
                content = _content(item.get("content") or "")
                self._texts.append(
                    content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
                )
            case "function_call":
                self._calls.append(
                    call_of(item.get("call_id", ""), item.get("name", ""), item.get("arguments", ""))
                )
            case "custom_tool_call":
                arguments = dumps({"input": item.get("input", "")})
                self._calls.append(call_of(item.get("call_id", ""), item.get("name", ""), arguments))
            case "local_shell_call":
                arguments = dumps(item.get("action") or {})
                self._calls.append(call_of(item.get("call_id", ""), "local_shell", arguments))
            case "reasoning":
                if self._texts or self._calls:  # thinking comes first: a new answer begins
                    return False
                for part in (item.get("content") or []) or (item.get("summary") or []):
                    self._thoughts.append(part.get("text", ""))
                if item.get("encrypted_content"):
                    self._raw.append({"type": "reasoning", "encrypted_content": item["encrypted_content"]})
            case _:
                return False
        return True

    def message(self) -> Message | None:
        if not (self._texts or self._thoughts or self._calls or self._raw):
            return None
        return assistant(
            "".join(self._texts), reasoning="".join(self._thoughts), calls=self._calls, raw=self._raw
        )


def whole(body: Json) -> Reply:
    reply = Reply(response_id=body.get("id"), error=error_text(body))
    _finish(reply, body)
    return reply


_DELTAS = {
    "response.output_text.delta": True,
    "response.refusal.delta": True,
    "response.reasoning_text.delta": False,
    "response.reasoning_summary_text.delta": False,
    "response.function_call_arguments.delta": False,
    "response.custom_tool_call_input.delta": False,
}


def stream(events: Iterable[Event]) -> Reply:
    reply = Reply()
    done: list[Json] = []
    texts = Fragments()
    for event in events:
        if event.data == b"[DONE]":
            continue
        chunk = orjson.loads(event.data)
        kind = chunk.get("type", "")
        if kind in _DELTAS:
            if chunk.get("delta"):
                reply.token_at(event.at_ns, text=_DELTAS[kind])
                if _DELTAS[kind]:
                    texts.add(chunk["delta"])
        elif kind == "response.output_item.done":
            done.append(chunk.get("item") or {})
            texts = Fragments()
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            _finish(reply, chunk["response"])
        elif kind == "response.created":
            reply.response_id = (chunk.get("response") or {}).get("id")
        elif kind == "error":
            reply.error = str(chunk.get("message") or error_text(chunk) or "error")
    if reply.message is None and (done or texts.text()):
        cut = [{"type": "message", "role": "assistant", "content": texts.text()}] if texts.text() else []
        reply.message = _one(messages(done + cut, []))
    return reply


def _finish(reply: Reply, response: Json) -> None:
    usage = response.get("usage") or {}
    reply.response_id = response.get("id") or reply.response_id
    reply.input_tokens = usage.get("input_tokens")
    reply.output_tokens = usage.get("output_tokens")
    reply.cached_tokens = (usage.get("input_tokens_details") or {}).get("cached_tokens")
    reply.reasoning_tokens = (usage.get("output_tokens_details") or {}).get("reasoning_tokens")
    reply.stop = (response.get("incomplete_details") or {}).get("reason") or response.get("status")
    reply.error = reply.error or error_text(response)
    reply.finished = response.get("status") in ("completed", "incomplete", "failed")
    if response.get("output"):
        reply.message = _one(messages(response["output"], []))


def _one(found: list[Message]) -> Message | None:
    """An answer is one message; several stretches of thinking and calling are joined in the order they came."""
    if len(found) <= 1:
        return found[0] if found else None
    return assistant(
        "".join(message["content"] or "" for message in found),
        reasoning="".join(message.get("reasoning", "") for message in found),
        calls=[call for message in found for call in message.get("tool_calls", ())],
        raw=[item for message in found for item in message.get("raw", ())],
    )
