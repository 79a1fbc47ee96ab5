"""mini-swe-agent 2.4: chat and Responses answers, and answers that the agent rejected."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.trace.importing import import_trace
from loadgen.trace.reader import open_trace
from tests.trace.test_formats import prompts, turns

Row = dict[str, Any]


def chat_answer(text: str | None, command: str | None, at: float | None = None) -> Row:
    """A chat completion's message with its response beside it."""
    call = {"id": "k1", "type": "function", "function": {"name": "bash", "arguments": command}}
    message = {"role": "assistant", "content": text, "tool_calls": [call] if command else None}
    usage = {"prompt_tokens": 100, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 64}}
    choice = {"finish_reason": "tool_calls" if command else "stop", "message": message}
    return {**message, "extra": {"response": {"choices": [choice], "usage": usage}, "timestamp": at}}


def response_answer(text: str | None, command: str | None, at: float | None = None) -> Row:
    """A response object, kept whole in place of a message."""
    output: list[Row] = [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}]
    if text:
        output.append(
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}
        )
    if command:
        output.append({"type": "function_call", "call_id": "k1", "name": "bash", "arguments": command})
    usage = {"input_tokens": 100, "output_tokens": 9, "input_tokens_details": {"cached_tokens": 64}}
    found = {"object": "response", "status": "completed", "output": output, "usage": usage}
    return {**found, "extra": {"timestamp": at}}


def conversation(api: str) -> list[Row]:
    make = chat_answer if api == "chat" else response_answer
    first, rejected, last = (
        make("I look.", '{"command": "ls"}', 10.0),
        make("forgot", None),
        make(None, "{}", 15.0),
    )
    result: Row = {"content": "README", "extra": {"timestamp": 12.5}, "role": "tool", "tool_call_id": "k1"}
    complaint: Row = {"role": "user", "content": "Tool call error"}
    response = rejected["extra"]["response"] if api == "chat" else rejected
    if api == "responses":
        result = {
            "type": "function_call_output",
            "call_id": "k1",
            "output": "README",
            "extra": result["extra"],
        }
        complaint = {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Tool call error"}],
        }
    complaint["extra"] = {"interrupt_type": "FormatError", "response": response}
    start = [{"role": "system", "content": "be brief"}, {"role": "user", "content": "fix it"}]
    return [*start, first, result, complaint, last, {"role": "exit", "content": "", "extra": {}}]


@pytest.mark.parametrize("api", ["chat", "responses"])
def test_a_rejected_answer_is_a_call_but_not_in_the_conversation(tmp_path: Path, api: str) -> None:
    path = tmp_path / "run.json"
    info = {"mini_version": "2.4.6", "config": {}}
    padding = {"role": "exit", "content": "x" * 70_000}  # the format's name is behind the first 64 KiB
    rows = [*conversation(api), padding]
    document = {"info": info, "messages": rows, "trajectory_format": "mini-swe-agent-1.1"}
    path.write_text(json.dumps(document))
    done = import_trace([path], tmp_path / "out.jsonl")
    assert done.format.name == "mini-swe-agent"
    with open_trace(done.path) as trace:
        assert not (trace.header.made or {}).get("skipped")
        first, second, third = turns(trace)
        assert [t.input_tokens for t in (first, second, third)] == [100] * 3
        assert (second.output_tokens, second.cached_tokens) == (9, 64)
        assert second.answer is not None
        assert second.answer["content"] == "forgot"
        assert (second.gap.kind, second.gap.s) == ("tool", 2.5) if second.gap else False
        assert [m["role"] for m in prompts(trace)[2]] == ["user", "assistant", "tool", "user"]
        assert prompts(trace)[2][-1]["content"] == "Tool call error"
        assert prompts(trace)[1][1]["tool_calls"][0]["function"]["arguments"] == '{"command": "ls"}'
        assert trace.sessions[0].system is not None
