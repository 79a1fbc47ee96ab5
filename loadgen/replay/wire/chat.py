"""OpenAI chat completions, as vLLM, SGLang and the public endpoints stream them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from loadgen.replay.wire.api import NOTHING, TEXT, TOKEN, BadEventError, EventReader, Output
from loadgen.replay.wire.choices import ChoiceEvents, body_options

NAME = "chat"
PATH = "/v1/chat/completions"
FORCES_LENGTH = True


def message(message: Mapping[str, Any]) -> bytes:
    """JSON of one message."""
    return orjson.dumps(message)


def envelope(
    model: str, output: Output, *, system: bytes | None = None, tools: bytes | None = None
) -> tuple[bytes, bytes]:
    """Both ends of a body. `system` is the JSON of the system prompt's string, `tools` that of the list of tools."""
    head = orjson.dumps(body_options(model, output))[:-1]
    if tools is not None:
        head += b',"tools":' + tools
    head += b',"messages":['
    if system is not None:
        head += b'{"role":"system","content":' + system + b"},"
    return head, b"]}"


class Events(ChoiceEvents):
    """Chunks of one chat completion."""

    __slots__ = ()

    def _choice(self, choice: Mapping[str, Any]) -> int:
        delta = choice.get("delta") or {}
        text = delta.get("content")
        reasoning = delta.get("reasoning_content") or delta.get("reasoning")
        calls = delta.get("tool_calls")
        answer = self.answer
        if answer is not None:
            answer.text += text or ""
            answer.reasoning += reasoning or ""
            answer.token_ids += choice.get("token_ids") or ()
            for call in calls or ():
                add_tool_call(answer.tool_calls, call)
        if text:
            return TEXT
        return TOKEN if reasoning or calls or delta.get("function_call") else NOTHING


def text_of(message: Mapping[str, Any]) -> str:
    """A message's text; the text parts of a list of parts, joined."""
    content = message.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content if isinstance(part, dict))
    return content or ""


def add_tool_call(calls: list[dict[str, Any]], part: Mapping[str, Any]) -> None:
    """Add one streamed fragment of a tool call to the calls so far; the next `index` begins a new call."""
    index = part.get("index", len(calls))
    if not isinstance(index, int) or not 0 <= index <= len(calls):
        raise BadEventError(f"a tool call has index {index!r} after {len(calls)} calls")
    if index == len(calls):
        calls.append({"id": "", "type": "function", "function": {"name": "", "arguments": ""}})
    call = calls[index]
    if part.get("id"):
        call["id"] = part["id"]
    function = part.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def events(*, collect: bool = False) -> EventReader:
    return Events(collect=collect)
