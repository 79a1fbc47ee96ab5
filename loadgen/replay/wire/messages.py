"""Anthropic messages: content blocks, `message_stop` at the end and no `[DONE]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from loadgen.errors import InputError
from loadgen.replay.wire.api import (
    NOTHING,
    TEXT,
    TOKEN,
    BadEventError,
    EventReader,
    Output,
    checked,
    count,
    error_text,
)
from loadgen.replay.wire.chat import add_tool_call, text_of
from loadgen.replay.wire.exchange import Usage

NAME = "messages"
PATH = "/v1/messages"
FORCES_LENGTH = False


def message(message: Mapping[str, Any]) -> bytes:
    """JSON of one message of chat shape: tool calls and results become content blocks.

    Raises InputError for a system message, which belongs into the envelope.
    """
    role = message["role"]
    if role in ("system", "developer"):
        raise InputError("the messages API takes the system prompt apart from the messages")
    if role == "tool":
        block = {
            "type": "tool_result",
            "tool_use_id": message.get("tool_call_id", ""),
            "content": text_of(message),
        }
        return orjson.dumps({"role": "user", "content": [block]})
    calls = message.get("tool_calls") or ()
    if not calls:
        return orjson.dumps({"role": role, "content": text_of(message)})
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text_of(message)}] if text_of(message) else []
    for call in calls:
        blocks.append(
            {
                "type": "tool_use",
                "id": call.get("id", ""),
                "name": call["function"]["name"],
                "input": _object(call["function"].get("arguments")),
            }
        )
    return orjson.dumps({"role": role, "content": blocks})


def _object(arguments: str | None) -> Any:
    """A call's arguments as an object, which this API insists on; what is no object is kept under `arguments`."""
    try:
        found = orjson.loads(arguments or "{}")
    except orjson.JSONDecodeError:
        found = None
    return found if isinstance(found, dict) else {"arguments": arguments}


def envelope(
    model: str, output: Output, *, system: bytes | None = None, tools: bytes | None = None
) -> tuple[bytes, bytes]:
    """Both ends of a body. `tools` is a list of OpenAI chat shape. Raises InputError for what the API cannot do."""
    if output.tokens is None:
        raise InputError("the messages API needs a limit on the output tokens")
    if output.forced:
        raise InputError("the messages API has no way to force the length of the output; allow it to vary")
    options: dict[str, Any] = {"model": model, "max_tokens": output.tokens, "stream": True}
    if output.temperature is not None:
        options["temperature"] = output.temperature
    head = orjson.dumps(options | dict(output.extra))[:-1]
    if system is not None:
        head += b',"system":' + system
    if tools is not None:
        head += b',"tools":' + orjson.dumps([_tool(tool["function"]) for tool in orjson.loads(tools)])
    return head + b',"messages":[', b"]}"


def _tool(function: Mapping[str, Any]) -> dict[str, Any]:
    tool = {"name": function["name"], "input_schema": function.get("parameters") or {"type": "object"}}
    return tool | ({"description": function["description"]} if function.get("description") else {})


_DELTAS = {"text_delta": "text", "thinking_delta": "thinking", "input_json_delta": "partial_json"}


class Events(EventReader):
    """Events of one message. Prompt tokens are the sum of what was read, written to and found in the cache."""

    done_marker = False
    __slots__ = ("_call",)

    def __init__(self, *, collect: bool = False) -> None:
        super().__init__(collect=collect)
        self._call = -1  # number of the tool call whose block is open

    def read(self, event: dict[str, Any]) -> int:
        kind = event.get("type")
        try:
            if kind == "content_block_delta":
                return self._delta(event["delta"])
            if kind == "content_block_start" and self.answer is not None:
                self._start(event["content_block"])
            elif kind == "message_start":
                self._usage(event["message"].get("usage") or {})
            elif kind == "message_delta":
                self.finish = event["delta"].get("stop_reason") or self.finish
                self._usage(event.get("usage") or {})
            elif kind == "message_stop":
                self.ended = True
            elif kind == "error" or event.get("error"):
                self.failure = error_text(event.get("error") or event)
        except (AttributeError, TypeError, KeyError) as error:
            raise BadEventError(f"an event has an unknown shape: {error}") from None
        return NOTHING

    def _delta(self, delta: Mapping[str, Any]) -> int:
        kind = delta.get("type")
        piece = delta.get(_DELTAS.get(kind, "")) if isinstance(kind, str) else None
        if not piece:
            return NOTHING
        answer = self.answer
        if answer is not None:
            if kind == "text_delta":
                answer.text += piece
            elif kind == "thinking_delta":
                answer.reasoning += piece
            else:
                add_tool_call(
                    answer.tool_calls, {"index": max(self._call, 0), "function": {"arguments": piece}}
                )
        return TEXT if kind == "text_delta" else TOKEN

    def _start(self, block: Mapping[str, Any]) -> None:
        assert self.answer is not None
        if block.get("type") == "tool_use":
            self._call = len(self.answer.tool_calls)
            part = {"index": self._call, "id": block.get("id"), "function": {"name": block.get("name")}}
            add_tool_call(self.answer.tool_calls, part)

    def _usage(self, found: Mapping[str, Any]) -> None:
        """Later events repeat or refine the counts of earlier ones."""
        raw = (self.usage.raw if self.usage else {}) | dict(found)
        fresh, read, written = (
            count(raw, key)
            for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        self.usage = checked(
            Usage(
                prompt_tokens=None if fresh is None else fresh + (read or 0) + (written or 0),
                cached_tokens=read,
                output_tokens=count(raw, "output_tokens"),
                raw=raw,
            )
        )


def events(*, collect: bool = False) -> EventReader:
    return Events(collect=collect)
