"""OpenAI chat completions, as vLLM, SGLang and the public endpoints stream them."""

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
from loadgen.replay.wire.exchange import Usage

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
    options: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    options |= sampling(output, limit="max_tokens")
    head = orjson.dumps(options)[:-1]
    if tools is not None:
        head += b',"tools":' + tools
    head += b',"messages":['
    if system is not None:
        head += b'{"role":"system","content":' + system + b"},"
    return head, b"]}"


def sampling(output: Output, *, limit: str) -> dict[str, Any]:
    """The body's fields for an `Output`; `limit` is the API's name of the token limit."""
    fields: dict[str, Any] = {}
    if output.tokens is not None:
        fields[limit] = output.tokens
        if output.forced:
            fields |= {"min_tokens": output.tokens, "ignore_eos": True}
    if output.temperature is not None:
        fields["temperature"] = output.temperature
    if output.seed is not None:
        fields["seed"] = output.seed
    if output.token_ids:
        fields["return_token_ids"] = True
    return fields | dict(output.extra)


class StepUsage:
    """Usage of chat and text completions, which a server may send once or with every chunk."""

    __slots__ = ("_seen",)

    def __init__(self) -> None:
        self._seen = 0  # output tokens so far

    def add(self, found: Any) -> tuple[Usage, int | None]:
        """The usage, and the output tokens since the last one. Raises BadEventError for impossible counts."""
        if not isinstance(found, dict):
            raise BadEventError("usage is not an object")
        usage = checked(
            Usage(
                prompt_tokens=count(found, "prompt_tokens"),
                cached_tokens=detail(found, "prompt_tokens_details", "cached_tokens"),
                output_tokens=count(found, "completion_tokens"),
                reasoning_tokens=detail(found, "completion_tokens_details", "reasoning_tokens"),
                raw=dict(found),
            )
        )
        if usage.output_tokens is None:
            return usage, None
        step, self._seen = usage.output_tokens - self._seen, usage.output_tokens
        return usage, step


class Events(EventReader):
    """Chunks of one chat completion. Only the first choice counts: this client asks for one."""

    __slots__ = ("_usage",)

    def __init__(self, *, collect: bool = False) -> None:
        super().__init__(collect=collect)
        self._usage = StepUsage()

    def read(self, event: dict[str, Any]) -> int:
        if event.get("error"):
            self.failure = error_text(event["error"])
            return NOTHING
        tokens = None
        if found := event.get("usage"):
            self.usage, tokens = self._usage.add(found)
        choices = event.get("choices")
        if not choices:
            return NOTHING
        try:
            choice = choices[0]
            delta = choice.get("delta") or {}
            text = delta.get("content")
            reasoning = delta.get("reasoning_content") or delta.get("reasoning")
            calls = delta.get("tool_calls")
            ids = choice.get("token_ids")
            if finish := choice.get("finish_reason"):
                self.finish = str(finish)
            if self.answer is not None:
                self._collect(text, reasoning, calls, ids)
        except (AttributeError, TypeError, KeyError, IndexError) as error:
            raise BadEventError(f"a chunk has an unknown shape: {error}") from None
        if not (text or reasoning or calls or delta.get("function_call")):
            return NOTHING
        self.event_tokens = len(ids) if ids else tokens
        return TEXT if text else TOKEN

    def _collect(self, text: Any, reasoning: Any, calls: Any, ids: Any) -> None:
        answer = self.answer
        assert answer is not None
        if text:
            answer.text += text
        if reasoning:
            answer.reasoning += reasoning
        if ids:
            answer.token_ids += ids
        for call in calls or ():
            add_tool_call(answer.tool_calls, call)


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
