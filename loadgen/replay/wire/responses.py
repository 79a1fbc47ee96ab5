"""OpenAI responses: typed events, `response.completed` at the end and no `[DONE]`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from loadgen.replay.wire.api import (
    NOTHING,
    TEXT,
    TOKEN,
    BadEventError,
    EventReader,
    Output,
    checked,
    count,
    detail,
    error_text,
)
from loadgen.replay.wire.chat import add_tool_call, text_of
from loadgen.replay.wire.exchange import Usage

NAME = "responses"
PATH = "/v1/responses"
FORCES_LENGTH = True


def message(message: Mapping[str, Any]) -> bytes:
    """JSON of the input items of one chat message, comma-joined: a message with tool calls is several items."""
    role = message["role"]
    if role == "tool":
        return orjson.dumps(
            {
                "type": "function_call_output",
                "call_id": message.get("tool_call_id", ""),
                "output": text_of(message),
            }
        )
    items: list[bytes] = []
    calls = message.get("tool_calls") or ()
    if text_of(message) or not calls:
        # The type may be left out by OpenAI's reference; llama.cpp does not know an assistant's message without it.
        items.append(orjson.dumps({"type": "message", "role": role, "content": text_of(message)}))
    for call in calls:
        function = call["function"]
        items.append(
            orjson.dumps(
                {
                    "type": "function_call",
                    "call_id": call.get("id", ""),
                    "name": function["name"],
                    "arguments": function.get("arguments", ""),
                }
            )
        )
    return b",".join(items)


def envelope(
    model: str, output: Output, *, system: bytes | None = None, tools: bytes | None = None
) -> tuple[bytes, bytes]:
    """Both ends of a body. `tools` is a list of OpenAI chat shape; it is flattened to this API's."""
    options: dict[str, Any] = {"model": model, "stream": True, "store": False}
    if output.tokens is not None:
        options["max_output_tokens"] = output.tokens
        if output.forced:
            options["ignore_eos"] = True
    if output.temperature is not None:
        options["temperature"] = output.temperature
    if output.seed is not None:
        options["seed"] = output.seed
    head = orjson.dumps(options | dict(output.extra))[:-1]
    if system is not None:
        head += b',"instructions":' + system
    if tools is not None:
        flat = [{"type": "function", **tool["function"]} for tool in orjson.loads(tools)]
        head += b',"tools":' + orjson.dumps(flat)
    return head + b',"input":[', b"]}"


_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_TOKEN = frozenset(
    {
        "response.reasoning_text.delta",
        "response.reasoning_summary_text.delta",
        "response.function_call_arguments.delta",
        "response.custom_tool_call_input.delta",
    }
)
_END = frozenset({"response.completed", "response.incomplete"})


class Events(EventReader):
    """Events of one response. `finish` is its status, or the reason for which it is incomplete."""

    done_marker = False
    __slots__ = ("_calls",)

    def __init__(self, *, collect: bool = False) -> None:
        super().__init__(collect=collect)
        self._calls: dict[Any, int] = {}  # output index to the number of the tool call

    def read(self, event: dict[str, Any]) -> int:
        kind = event.get("type")
        try:
            if kind in _TEXT or kind in _TOKEN:
                delta = event.get("delta")
                if not delta:
                    return NOTHING
                if self.answer is not None:
                    self._collect(str(kind), event, delta)
                return TEXT if kind in _TEXT else TOKEN
            if kind in _END:
                self._end(event["response"])
            elif kind == "response.failed":
                self.failure = error_text(event["response"].get("error"))
            elif kind == "error" or (kind is None and event.get("error")):
                self.failure = error_text(event.get("error") or event)
            elif kind == "response.output_item.added" and self.answer is not None:
                self._item(event)
        except (AttributeError, TypeError, KeyError) as error:
            raise BadEventError(f"an event has an unknown shape: {error}") from None
        return NOTHING

    def _end(self, response: Mapping[str, Any]) -> None:
        self.ended = True
        reason = (response.get("incomplete_details") or {}).get("reason")
        self.finish = str(reason or response.get("status") or "completed")
        if found := response.get("usage"):
            self.usage = checked(
                Usage(
                    prompt_tokens=count(found, "input_tokens"),
                    cached_tokens=detail(found, "input_tokens_details", "cached_tokens"),
                    output_tokens=count(found, "output_tokens"),
                    reasoning_tokens=detail(found, "output_tokens_details", "reasoning_tokens"),
                    raw=dict(found),
                )
            )

    def _collect(self, kind: str, event: Mapping[str, Any], delta: str) -> None:
        assert self.answer is not None
        if kind in _TEXT:
            self.answer.text += delta
        elif "reasoning" in kind:
            self.answer.reasoning += delta
        else:
            number = self._calls.setdefault(event.get("output_index"), len(self.answer.tool_calls))
            add_tool_call(self.answer.tool_calls, {"index": number, "function": {"arguments": delta}})

    def _item(self, event: Mapping[str, Any]) -> None:
        assert self.answer is not None
        item = event["item"]
        if item.get("type") == "function_call":
            number = self._calls.setdefault(event.get("output_index"), len(self.answer.tool_calls))
            part = {"index": number, "id": item.get("call_id"), "function": {"name": item.get("name")}}
            add_tool_call(self.answer.tool_calls, part)


def events(*, collect: bool = False) -> EventReader:
    return Events(collect=collect)
