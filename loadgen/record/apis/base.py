"""What every API's module gives: the prompt of a request and the reply of its answer, in one shape.

The shape is OpenAI chat with tool calls (design, section 3). `canonical` removes what clients vary and no
tokenizer sees, so that a message that comes back in the next request is known again.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable
from typing import Any, Protocol

import msgspec
import orjson

from loadgen.record.sse import Event
from loadgen.trace.check import ROLES
from loadgen.trace.model import Message

Json = dict[str, Any]

_OLD_ROLES = {"function": "tool"}


class Prompt(msgspec.Struct, kw_only=True):
    """A request to a model. `messages` are canonical; `previous` names a stored response that they continue."""

    model: str = ""
    system: str | None = None
    tools: list[Json] = []
    messages: list[Message] = []
    max_tokens: int | None = None
    stream: bool = False
    previous: str | None = None
    notes: list[str] = []  # what has no place in a chat request and was left out


class Reply(msgspec.Struct, kw_only=True):
    """A model's answer. Stamps are read times of the pieces that brought it; null without a stream."""

    message: Message | None = None
    response_id: str | None = None
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    stop: str | None = None
    first_token_ns: int | None = None
    first_text_ns: int | None = None
    finished: bool = False  # the API's own end was seen
    error: str | None = None

    def token_at(self, at_ns: int, *, text: bool) -> None:
        """Note a piece of output; `text` when a person would see it."""
        if self.first_token_ns is None:
            self.first_token_ns = at_ns
        if text and self.first_text_ns is None:
            self.first_text_ns = at_ns


class Api(Protocol):
    """One API. `prompt` raises ValueError, KeyError or TypeError for a body that is no request of this API."""

    name: str
    prompt: Callable[[Json], Prompt]
    whole: Callable[[Json], Reply]
    stream: Callable[[Iterable[Event]], Reply]


def dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


def canonical(message: Json) -> Message:
    """A chat message without what does not reach the prompt.

    Dropped: keys that are null or empty, `cache_control`, `index` of tool calls. One text part becomes a string,
    `reasoning_content` becomes `reasoning`, and no content beside tool calls is null.
    """
    role = message["role"]
    result: Message = {
        "role": role if role in ROLES else _OLD_ROLES.get(role, "user"),
        "content": _content(message.get("content")),
    }
    for key, value in message.items():
        if key in ("role", "content", "tool_calls") or value in (None, "", [], {}):
            continue
        result["reasoning" if key == "reasoning_content" else key] = value
    if calls := message.get("tool_calls"):
        result["tool_calls"] = [_call(call) for call in calls]
        result["content"] = result["content"] or None
    return result


def _call(call: Json) -> Json:
    if custom := call.get("custom"):
        return function_call(call.get("id", ""), custom["name"], dumps({"input": custom.get("input", "")}))
    function = call["function"]
    return function_call(call.get("id") or "", function.get("name") or "", function.get("arguments") or "")


def _content(content: Any) -> Any:
    if not isinstance(content, list):
        return content if content is None or isinstance(content, str) else dumps(content)
    parts = [
        {key: value for key, value in part.items() if key != "cache_control"}
        if isinstance(part, dict)
        else part
        for part in content
    ]
    if len(parts) == 1 and isinstance(parts[0], dict) and parts[0].get("type") == "text":
        return parts[0]["text"]
    return parts


def error_text(body: Any) -> str | None:
    """The error that a JSON body reports, in the words of any of the three APIs."""
    if not isinstance(body, dict):
        return None
    error = body.get("error")
    if isinstance(error, dict):
        return str(error.get("message") or error.get("type") or "error")
    return str(error) if error else None


class Fragments:
    """Text that comes in pieces, joined once."""

    def __init__(self) -> None:
        self._parts: list[str] = []

    def add(self, text: str) -> None:
        self._parts.append(text)

    def text(self) -> str:
        return "".join(self._parts)


def function_call(call_id: str, name: str, arguments: str) -> Json:
    """A tool call; JSON arguments are written compactly, since servers parse them and clients rewrite their spaces."""
    with contextlib.suppress(orjson.JSONDecodeError):
        arguments = dumps(orjson.loads(arguments))
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(
    content: Any, *, reasoning: str = "", calls: list[Json] | None = None, raw: list[Json] | None = None
) -> Message:
    """An assistant message in canonical shape; `raw` holds originals that lost something on the way."""
    return canonical(
        {
            "role": "assistant",
            "content": content,
            "reasoning": reasoning,
            "tool_calls": calls or [],
            "raw": raw,
        }
    )
