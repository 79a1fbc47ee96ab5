"""OpenAI Chat Completions."""

from __future__ import annotations

from collections.abc import Iterable

import orjson

from loadgen.record.apis.base import Fragments, Json, Prompt, Reply, assistant, canonical, error_text
from loadgen.record.apis.base import function_call as call_of
from loadgen.record.sse import Event

name = "chat"


def prompt(body: Json) -> Prompt:
    messages = [canonical(message) for message in body["messages"]]
    system = None
    if len(messages) > 1 and messages[0]["role"] == "system" and isinstance(messages[0]["content"], str):
        system = messages.pop(0)["content"]
    notes = [f"n={body['n']}: only the first choice is recorded"] if (body.get("n") or 1) > 1 else []
    return Prompt(
        model=str(body.get("model") or ""),
        system=system,
        tools=body.get("tools") or [],
        messages=messages,
        max_tokens=body.get("max_completion_tokens") or body.get("max_tokens"),
        stream=bool(body.get("stream")),
        notes=notes,
    )


def whole(body: Json) -> Reply:
    choice = (body.get("choices") or [{}])[0]
    message = choice.get("message")
    reply = Reply(
        message=canonical(message) if message else None,
        response_id=body.get("id"),
        stop=choice.get("finish_reason"),
        finished=message is not None,
        error=error_text(body),
    )
    _usage(reply, body.get("usage"))
    return reply


def stream(events: Iterable[Event]) -> Reply:
    reply = Reply()
    content, reasoning = Fragments(), Fragments()
    calls: dict[int, tuple[Json, Fragments]] = {}
    for event in events:
        if event.data == b"[DONE]":
            reply.finished = True
            continue
        chunk = orjson.loads(event.data)
        reply.error = reply.error or error_text(chunk)
        reply.response_id = reply.response_id or chunk.get("id")
        _usage(reply, chunk.get("usage"))
        for choice in chunk.get("choices") or ():
            if choice.get("index"):
                continue
            reply.stop = choice.get("finish_reason") or reply.stop
            delta = choice.get("delta") or {}
            if text := delta.get("content") or delta.get("refusal"):
                content.add(text)
                reply.token_at(event.at_ns, text=True)
            if thought := delta.get("reasoning") or delta.get("reasoning_content"):
                reasoning.add(thought)
                reply.token_at(event.at_ns, text=False)
            for part in delta.get("tool_calls") or ():
                function = part.get("function") or {}
                call, arguments = calls.setdefault(part.get("index") or 0, (call_of("", "", ""), Fragments()))
                call["id"] = call["id"] or part.get("id") or ""
                call["function"]["name"] += function.get("name") or ""
                arguments.add(function.get("arguments") or "")
                if function.get("name") or function.get("arguments"):
                    reply.token_at(event.at_ns, text=False)
    for call, arguments in calls.values():
        call["function"]["arguments"] = arguments.text()
    if reply.first_token_ns is not None or reply.finished:
        reply.message = assistant(
            content.text(), reasoning=reasoning.text(), calls=[call for _, (call, _) in sorted(calls.items())]
        )
    return reply


def _usage(reply: Reply, usage: Json | None) -> None:
    if not usage:
        return
    reply.input_tokens = usage.get("prompt_tokens")
    reply.output_tokens = usage.get("completion_tokens")
    reply.cached_tokens = (usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    reply.reasoning_tokens = (usage.get("completion_tokens_details") or {}).get("reasoning_tokens")
