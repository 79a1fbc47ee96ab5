"""The three APIs in one shape: requests, whole answers and streams, with first token, first text and usage."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from loadgen.record.apis import api_of, chat, messages, responses
from loadgen.record.sse import Event, events

SAMPLES = Path(__file__).resolve().parents[3] / "shared" / "samples" / "vllm"


def stream_of(*values: Any) -> Iterable[Event]:
    """Event i is read at i ns."""
    return [
        Event(i, "", value if isinstance(value, bytes) else json.dumps(value).encode())
        for i, value in enumerate(values)
    ]


def delta(**fields: Any) -> dict[str, Any]:
    return {"id": "c1", "choices": [{"index": 0, "delta": fields, "finish_reason": None}]}


def test_paths() -> None:
    assert api_of("POST", "/v1/chat/completions") is chat
    assert api_of("POST", "/openai/v1/responses") is responses
    assert api_of("POST", "/v1/messages") is messages
    assert api_of("POST", "/v1/messages/count_tokens") is None
    assert api_of("GET", "/v1/messages") is None
    assert api_of("POST", "/responses/compact") is None


def test_chat_stream_counts_no_role_chunk_as_token() -> None:
    reply = chat.stream(
        stream_of(
            delta(role="assistant", content=""),
            {"id": "c1", "choices": []},
            delta(reasoning_content="hm"),
            delta(content="yes"),
            delta(tool_calls=[{"index": 1, "id": "b", "function": {"name": "two", "arguments": ""}}]),
            delta(tool_calls=[{"index": 0, "id": "a", "function": {"name": "one", "arguments": '{"x": '}}]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": "1}"}}]),
            {"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]},
            {
                "choices": [],
                "usage": {
                    "prompt_tokens": 9,
                    "completion_tokens": 4,
                    "prompt_tokens_details": {"cached_tokens": 3},
                    "completion_tokens_details": {"reasoning_tokens": 1},
                },
            },
            b"[DONE]",
        )
    )
    assert (reply.first_token_ns, reply.first_text_ns, reply.finished, reply.stop) == (
        2,
        3,
        True,
        "tool_calls",
    )
    assert (reply.input_tokens, reply.output_tokens, reply.cached_tokens, reply.reasoning_tokens) == (
        9,
        4,
        3,
        1,
    )
    assert reply.message is not None
    assert reply.message["reasoning"] == "hm"
    assert [call["function"] for call in reply.message["tool_calls"]] == [
        {"name": "one", "arguments": '{"x":1}'},
        {"name": "two", "arguments": ""},
    ]


def test_chat_stream_that_was_cut_or_failed() -> None:
    cut = chat.stream(stream_of(delta(role="assistant", content=""), delta(content="ab")))
    assert (cut.finished, cut.message) == (False, {"role": "assistant", "content": "ab"})
    nothing = chat.stream(stream_of(delta(role="assistant", content="")))
    assert (nothing.message, nothing.first_token_ns) == (None, None)
    failed = chat.stream(stream_of({"error": {"message": "boom"}}))
    assert failed.error == "boom"


def test_a_message_that_comes_back_is_the_answer() -> None:
    """Clients echo answers with nulls, empty lists and other spaces in the arguments."""
    answer = chat.whole(
        {
            "choices": [
                {
                    "message": {
                        "role": "assistant",
                        "content": "",
                        "tool_calls": [
                            {
                                "id": "a",
                                "type": "function",
                                "function": {"name": "f", "arguments": '{"b": 1, "a": 2}'},
                            }
                        ],
                    }
                }
            ]
        }
    ).message
    echo = chat.prompt(
        {
            "model": "m",
            "messages": [
                {
                    "role": "assistant",
                    "content": None,
                    "refusal": None,
                    "annotations": [],
                    "audio": None,
                    "tool_calls": [
                        {
                            "index": 0,
                            "id": "a",
                            "type": "function",
                            "function": {"arguments": '{"b":1,"a":2}', "name": "f"},
                        }
                    ],
                }
            ],
        }
    ).messages[0]
    assert echo == answer


def test_chat_prompt() -> None:
    prompt = chat.prompt(
        {
            "model": "m",
            "n": 2,
            "max_completion_tokens": 5,
            "messages": [
                {"role": "system", "content": "S"},
                {
                    "role": "user",
                    "content": [{"type": "text", "text": "U", "cache_control": {"type": "ephemeral"}}],
                },
                {"role": "function", "name": "f", "content": "F"},
            ],
        }
    )
    assert (prompt.system, prompt.max_tokens, len(prompt.notes)) == ("S", 5, 1)
    assert prompt.messages == [
        {"role": "user", "content": "U"},
        {"role": "tool", "content": "F", "name": "f"},
    ]
    alone = chat.prompt({"model": "m", "messages": [{"role": "system", "content": "only"}]})
    assert (alone.system, alone.messages) == (None, [{"role": "system", "content": "only"}])


def test_messages_prompt() -> None:
    prompt = messages.prompt(
        {
            "model": "claude",
            "max_tokens": 7,
            "system": [{"type": "text", "text": "A", "cache_control": {}}, {"type": "text", "text": "B"}],
            "tools": [
                {"name": "t", "description": "d", "input_schema": {"type": "object"}, "cache_control": {}},
                {"type": "web_search_20250305", "name": "web_search"},
            ],
            "messages": [
                {"role": "user", "content": "hello"},
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "T", "signature": "sig"},
                        {"type": "text", "text": "x"},
                        {"type": "tool_use", "id": "u1", "name": "t", "input": {"k": "v"}},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {
                            "type": "tool_result",
                            "tool_use_id": "u1",
                            "content": [{"type": "text", "text": "r1"}, {"type": "text", "text": "r2"}],
                        },
                        {"type": "text", "text": "and", "cache_control": {}},
                        {
                            "type": "image",
                            "source": {"type": "base64", "media_type": "image/png", "data": "AA"},
                        },
                    ],
                },
            ],
        }
    )
    assert prompt.system == "AB"
    assert [tool["function"]["name"] for tool in prompt.tools] == ["t"]
    assert "web_search" in prompt.notes[0]
    user, assistant, tool, more = prompt.messages
    assert user == {"role": "user", "content": "hello"}
    assert (assistant["content"], assistant["reasoning"]) == ("x", "T")
    assert assistant["tool_calls"][0]["function"] == {"name": "t", "arguments": '{"k":"v"}'}
    assert assistant["raw"] == [{"type": "thinking", "thinking": "T", "signature": "sig"}]
    assert tool == {"role": "tool", "tool_call_id": "u1", "content": "r1\nr2"}
    assert [part["type"] for part in more["content"]] == ["text", "image_url"]


def test_messages_stream_sums_the_prompt_and_skips_pings() -> None:
    reply = messages.stream(
        stream_of(
            {
                "type": "message_start",
                "message": {
                    "id": "m1",
                    "usage": {
                        "input_tokens": 2,
                        "cache_read_input_tokens": 30,
                        "cache_creation_input_tokens": 8,
                        "output_tokens": 1,
                    },
                },
            },
            {"type": "ping"},
            {
                "type": "content_block_start",
                "index": 0,
                "content_block": {"type": "thinking", "thinking": "", "signature": ""},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "thinking_delta", "thinking": "hm"},
            },
            {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "signature_delta", "signature": "s1"},
            },
            {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": ""}},
            {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "ok"}},
            {
                "type": "content_block_start",
                "index": 2,
                "content_block": {"type": "tool_use", "id": "u", "name": "t", "input": {}},
            },
            {
                "type": "content_block_delta",
                "index": 2,
                "delta": {"type": "input_json_delta", "partial_json": '{"a":'},
            },
            {
                "type": "content_block_delta",
                "index": 2,
                "delta": {"type": "input_json_delta", "partial_json": " 1}"},
            },
            {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 17}},
            {"type": "message_stop"},
        )
    )
    assert (reply.input_tokens, reply.cached_tokens, reply.output_tokens) == (40, 30, 17)
    assert (reply.first_token_ns, reply.first_text_ns, reply.stop, reply.finished) == (3, 6, "tool_use", True)
    assert reply.message is not None
    assert reply.message["tool_calls"][0]["function"]["arguments"] == '{"a":1}'
    assert reply.message["raw"] == [{"type": "thinking", "thinking": "hm", "signature": "s1"}]


def test_responses_prompt_joins_the_items_of_one_answer() -> None:
    prompt = responses.prompt(
        {
            "model": "m",
            "instructions": "I",
            "tools": [
                {"type": "function", "name": "f", "parameters": {}},
                {"type": "custom", "name": "patch"},
                {"type": "web_search"},
            ],
            "input": [
                {"role": "user", "content": [{"type": "input_text", "text": "q"}]},
                {
                    "type": "reasoning",
                    "summary": [{"type": "summary_text", "text": "th"}],
                    "encrypted_content": "enc",
                },
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "a"}]},
                {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
                {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "P"},
                {"type": "function_call_output", "call_id": "c1", "output": "o"},
                {
                    "type": "custom_tool_call_output",
                    "call_id": "c2",
                    "output": [{"type": "input_text", "text": "p"}],
                },
                {"type": "reasoning", "summary": []},
                {"type": "function_call", "call_id": "c3", "name": "f", "arguments": "{}"},
            ],
        }
    )
    roles = [message["role"] for message in prompt.messages]
    assert roles == ["user", "assistant", "tool", "tool", "assistant"]
    answer = prompt.messages[1]
    assert (answer["content"], answer["reasoning"]) == ("a", "th")
    assert [call["id"] for call in answer["tool_calls"]] == ["c1", "c2"]
    assert answer["raw"] == [{"type": "reasoning", "encrypted_content": "enc"}]
    assert [tool["function"]["name"] for tool in prompt.tools] == ["f", "patch"]
    assert len(prompt.notes) == 1
    assert responses.prompt({"model": "m", "input": "just text"}).messages == [
        {"role": "user", "content": "just text"}
    ]


def test_responses_stream_that_ends_early_keeps_what_came() -> None:
    reply = responses.stream(
        stream_of(
            {"type": "response.created", "response": {"id": "r1"}},
            {
                "type": "response.output_item.done",
                "item": {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"},
            },
            {"type": "response.output_text.delta", "delta": "par"},
            {"type": "response.output_text.delta", "delta": "tial"},
        )
    )
    assert (reply.response_id, reply.finished, reply.first_text_ns) == ("r1", False, 2)
    assert reply.message is not None
    assert (reply.message["content"], len(reply.message["tool_calls"])) == ("partial", 1)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the recorded vLLM streams are not beside this checkout")
@pytest.mark.parametrize(
    ("file", "api", "tokens", "cached"),
    [
        ("chat_stream.sse", chat, (29, 8), 0),
        ("chat_stream_tool_named.sse", chat, (89, 60), 0),
        ("chat_stream_tool_required.sse", chat, (89, 60), 0),
        ("chat_stream_token_ids.sse", chat, (11, 3), 0),
        ("chat_stream_no_usage.sse", chat, (None, None), None),
        ("messages_stream.sse", messages, (22, 4), 0),
        ("responses_stream.sse", responses, (12, 4), 0),
    ],
)
def test_recorded_vllm_streams(
    file: str, api: Any, tokens: tuple[int | None, int | None], cached: int | None
) -> None:
    data = (SAMPLES / file).read_bytes()
    for size in (len(data), 50):
        reply = api.stream(events((i, data[i : i + size]) for i in range(0, len(data), size)))
        assert (reply.input_tokens, reply.output_tokens) == tokens
        assert (reply.cached_tokens, reply.finished, reply.error) == (cached, True, None)
        assert reply.message["content"] or reply.message["tool_calls"]
        assert reply.first_token_ns is not None
