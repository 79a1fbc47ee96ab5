from __future__ import annotations

import json
from typing import Any

import pytest
from streams import chunked, sse
from test_wire_decoder import decode

from loadgen.errors import InputError
from loadgen.measure.sample import ErrorClass
from loadgen.replay.wire import apis, completions
from loadgen.replay.wire.api import Output

CALL = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"command":"ls"}'}}
TOOLS = [
    {"type": "function", "function": {"name": "bash", "description": "run", "parameters": {"type": "object"}}}
]
CONVERSATION: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "so", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "c1", "content": [{"type": "text", "text": "a.py"}]},
]


def body(api: str, output: Output, **ends: Any) -> dict[str, Any]:
    module = apis.get(api)
    messages = [module.message(m) for m in CONVERSATION]
    ends = {name: json.dumps(value).encode() for name, value in ends.items()}
    head, tail = module.envelope("m", output, **ends)
    found: dict[str, Any] = json.loads(head + b",".join(messages) + tail)
    return found


def test_chat_body() -> None:
    found = body("chat", Output(tokens=5, seed=3, extra={"cache_salt": "x"}), system="be brief", tools=TOOLS)
    assert found == {
        "model": "m", "stream": True, "stream_options": {"include_usage": True}, "max_tokens": 5, "min_tokens": 5,
        "ignore_eos": True, "temperature": 0.0, "seed": 3, "cache_salt": "x", "tools": TOOLS,
        "messages": [{"role": "system", "content": "be brief"}, *CONVERSATION],
    }  # fmt: skip


def test_chat_body_for_a_public_endpoint_has_nothing_of_vllms() -> None:
    found = body("chat", Output(tokens=5, forced=False, temperature=None))
    assert set(found) == {"model", "stream", "stream_options", "max_tokens", "messages"}


def test_responses_body() -> None:
    found = body("responses", Output(tokens=5), system="be brief", tools=TOOLS)
    assert found["max_output_tokens"] == 5
    assert found["instructions"] == "be brief"
    assert found["tools"] == [
        {"type": "function", "name": "bash", "description": "run", "parameters": {"type": "object"}}
    ]
    assert found["input"] == [
        {"type": "message", "role": "user", "content": "hi"},
        {"type": "message", "role": "assistant", "content": "so"},
        {"type": "function_call", "call_id": "c1", "name": "bash", "arguments": '{"command":"ls"}'},
        {"type": "function_call_output", "call_id": "c1", "output": "a.py"},
    ]


def test_messages_body() -> None:
    found = body("messages", Output(tokens=5, forced=False), system="be brief", tools=TOOLS)
    assert (found["system"], found["max_tokens"]) == ("be brief", 5)
    assert found["tools"] == [{"name": "bash", "description": "run", "input_schema": {"type": "object"}}]
    use = {"type": "tool_use", "id": "c1", "name": "bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "c1", "content": "a.py"}
    assert found["messages"] == [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [{"type": "text", "text": "so"}, use]},
        {"role": "user", "content": [result]},
    ]


def test_what_an_api_cannot_do_is_said() -> None:
    with pytest.raises(InputError, match="no way to force"):
        apis.get("messages").envelope("m", Output(tokens=5))
    with pytest.raises(InputError, match="limit"):
        apis.get("messages").envelope("m", Output(forced=False))
    with pytest.raises(InputError, match="token ids"):
        apis.get("completions").message({"role": "user", "content": "hi"})
    with pytest.raises(InputError, match="there are: chat, completions, responses, messages"):
        apis.get("grpc")


def test_completions_take_ids_and_give_ids() -> None:
    head, tail = completions.envelope("m", Output(tokens=2, token_ids=True))
    found = json.loads(head + b",".join([completions.fragment([1, 2]), completions.fragment([3])]) + tail)
    assert (found["prompt"], found["return_token_ids"]) == ([1, 2, 3], True)
    events = [
        {"choices": [{"text": text, "token_ids": ids, "finish_reason": None}]}
        for text, ids in (("", [7]), ("é", [8, 9]))
    ]
    events.append({"choices": [{"text": "", "finish_reason": "length"}]})
    events.append({"choices": [], "usage": {"prompt_tokens": 3, "completion_tokens": 3}})
    exchange, _ = decode(chunked(sse(*events)), api="completions")
    assert exchange.error is None
    assert exchange.answer is not None
    assert (exchange.answer.text, exchange.answer.token_ids) == ("é", [7, 8, 9])
    assert (exchange.chunks, exchange.first_event_tokens) == (2, 1)


def test_responses_with_reasoning_and_a_call() -> None:
    counts = {
        "input_tokens": 9,
        "output_tokens": 4,
        "input_tokens_details": {"cached_tokens": 2},
        "output_tokens_details": {"reasoning_tokens": 1},
    }
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {"status": "in_progress"}},
        {"type": "response.reasoning_text.delta", "delta": "hm"},
        {"type": "response.output_text.delta", "delta": ""},
        {"type": "response.output_text.delta", "delta": "so"},
        {"type": "response.output_item.added", "output_index": 2, "item": {"type": "function_call", "call_id": "c1", "name": "bash"}},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '{"command":'},
        {"type": "response.function_call_arguments.delta", "output_index": 2, "delta": '"ls"}'},
    ]  # fmt: skip
    end = {"type": "response.completed", "response": {"status": "completed", "usage": counts}}
    exchange, _ = decode(chunked(sse(*events, end, done=False, named=True)), api="responses")
    assert exchange.error is None, exchange.message
    assert exchange.answer is not None
    assert exchange.usage is not None
    assert (exchange.answer.text, exchange.answer.reasoning, exchange.answer.tool_calls) == (
        "so",
        "hm",
        [CALL],
    )
    assert (exchange.usage.cached_tokens, exchange.usage.reasoning_tokens) == (2, 1)
    assert (exchange.chunks, exchange.finish) == (4, "completed")
    assert (
        decode(chunked(sse(*events, done=False, named=True)), api="responses")[0].error
        is ErrorClass.TRUNCATED
    )
    failed = {"type": "response.failed", "response": {"status": "failed", "error": {"message": "boom"}}}
    exchange, _ = decode(chunked(sse(*events, failed, done=False, named=True)), api="responses")
    assert (exchange.error, exchange.message) == (ErrorClass.STREAM_ERROR, "boom")


def test_messages_with_thinking_and_a_call() -> None:
    start = {
        "input_tokens": 3,
        "cache_read_input_tokens": 6,
        "cache_creation_input_tokens": 1,
        "output_tokens": 0,
    }
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {"usage": start}},
        {"type": "ping"},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "thinking_delta", "thinking": "hm"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "signature_delta", "signature": "zz"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "so"}},
        {
            "type": "content_block_start",
            "index": 2,
            "content_block": {"type": "tool_use", "id": "c1", "name": "bash"},
        },
        {
            "type": "content_block_delta",
            "index": 2,
            "delta": {"type": "input_json_delta", "partial_json": '{"command":"ls"}'},
        },
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 8}},
    ]
    exchange, _ = decode(
        chunked(sse(*events, {"type": "message_stop"}, done=False, named=True)), api="messages"
    )
    assert exchange.error is None, exchange.message
    assert exchange.answer is not None
    assert exchange.usage is not None
    assert (exchange.answer.text, exchange.answer.reasoning, exchange.answer.tool_calls) == (
        "so",
        "hm",
        [CALL],
    )
    assert (exchange.usage.prompt_tokens, exchange.usage.cached_tokens, exchange.usage.output_tokens) == (
        10,
        6,
        8,
    )
    assert (exchange.chunks, exchange.finish) == (3, "tool_use")
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "later"}}
    exchange, _ = decode(chunked(sse(*events, error, done=False, named=True)), api="messages")
    assert (exchange.error, exchange.message) == (ErrorClass.STREAM_ERROR, "overloaded_error: later")


@pytest.mark.parametrize("api", apis.NAMES)
@pytest.mark.parametrize("choice", [{"choices": [3]}, {"choices": [{"delta": 3}]}, {"type": "response.completed"}, {"type": "message_delta", "delta": 7}, {"type": "content_block_delta"}, {"choices": [{"delta": {"tool_calls": [{"index": 10**9}]}}]}, {"usage": [1]}])  # fmt: skip
def test_odd_shapes_never_raise(api: str, choice: dict[str, Any]) -> None:
    exchange, _ = decode(chunked(sse(choice)), api=api)
    assert exchange.error in (ErrorClass.MALFORMED, ErrorClass.TRUNCATED)
