"""One small file a foreign format, made up for these tests after the formats' documentation.

`FILES` maps a format's name to its files (path below a folder, content), and to what an import must find:
sessions, sub-agents, turns.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.trace.fixtures_agents import (
    CLAUDE_MAIN,
    CLAUDE_SUB,
    CODEX,
    doc,
    jsonl,
    opencode_files,
    text,
    tool_use,
)

WEKA = {
    "id": "trace_1",
    "models": ["m"],
    "block_size": 64,
    "hash_id_scope": "local",
    "tool_tokens": 64,
    "system_tokens": 64,
    "requests": [
        {"t": 0.0, "type": "n", "model": "m", "in": 200, "out": 70, "hash_ids": [1, 2, 3], "input_types": ["text"], "stop": "tool_use", "api_time": 2.0, "think_time": 0.0},
        {"t": 3.0, "type": "n", "model": "m", "in": 330, "out": 5, "hash_ids": [1, 2, 3, 4, 5], "input_types": ["tool_result"], "stop": "tool_use", "api_time": 1.0, "think_time": 1.0},
        {"t": 5.0, "type": "subagent", "agent_id": "a1", "subagent_type": "Explore", "status": "completed", "requests": [
            {"t": 0.0, "type": "n", "model": "m", "in": 130, "out": 5, "hash_ids": [8, 9], "stop": "end_turn", "api_time": 4.0}]},
        {"t": 12.0, "type": "s", "model": "m", "in": 260, "out": 5, "hash_ids": [1, 2, 3, 10], "input_types": ["text"], "stop": "end_turn", "api_time": 1.0, "ttft": 0.5},
        {"t": 20.0, "type": "n", "model": "m", "in": 400, "out": 5, "hash_ids": [1, 2, 3, 4, 5, 11], "input_types": ["text"], "stop": "end_turn"},
    ],
}  # fmt: skip


def _hashed(at: int, length: int, ids: list[int], **more: int) -> dict[str, Any]:
    return {"timestamp": at, "input_length": length, "output_length": 10, "hash_ids": ids, **more}


MOONCAKE = jsonl(
    _hashed(0, 1500, [0, 1, 2]), _hashed(0, 1500, [0, 1, 2]), _hashed(3000, 2100, [0, 1, 5, 6, 7])
)
BAILIAN = jsonl(
    _hashed(0, 40, [1, 2, 3], chat_id=1, parent_chat_id=-1, turn=1),
    _hashed(5, 64, [1, 2, 4, 5], chat_id=2, parent_chat_id=1, turn=2),
    _hashed(6, 48, [1, 2, 9], chat_id=3, parent_chat_id=1, turn=2),
)
AZURE = b"TIMESTAMP,ContextTokens,GeneratedTokens\r\n2023-11-16 18:17:03.9799600,4808,10\r\n2023-11-16 18:17:04.0319600,3180,8\r\nbad,row\r\n"
BURSTGPT = b"Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,a,2,GPT-4,472,18,490,Conversation log\n45,a,1,GPT-4,1087,0,1087,API log\n9,b,,GPT-4,3,4,7,API log\n"


def _event(kind: str, second: int) -> dict[str, Any]:
    return {"event_type": kind, "timestamp": f"2026-06-01T05:40:{second:02d}.000Z"}


TRACELAB = jsonl(
    {"session_id": "q", "round_index": 0, "input_tokens_total": 1000, "prefix_tokens": 500, "output_tokens": 50, "first_input_event_type": "user_message", "timing_events": [_event("user_message", 0), _event("text", 5)], "tools": [{}]},
    {"session_id": "q", "round_index": 1, "input_tokens_total": 1300, "prefix_tokens": 1000, "output_tokens": 40, "first_input_event_type": "tool_result", "timing_events": [_event("tool_result", 7), _event("text", 9)], "tools": []},
)  # fmt: skip

MINI = {
    "trajectory_format": "mini-swe-agent-1.1",
    "info": {"mini_version": "2.1.0"},
    "messages": [
        {"role": "system", "content": "act"},
        {"role": "user", "content": "solve", "extra": {"timestamp": 100.0}},
        {"role": "assistant", "content": "ls", "extra": {"timestamp": 102.0, "response": {"usage": {"prompt_tokens": 30, "completion_tokens": 4}, "choices": [{"finish_reason": "stop"}]}}},
        {"role": "user", "content": "README", "extra": {"timestamp": 103.5}},
        {"role": "assistant", "content": "done", "extra": {"timestamp": 104.0, "response": {"usage": {"prompt_tokens": 40, "completion_tokens": 2}}}},
    ],
}  # fmt: skip
SWE = {
    "environment": "swe_main",
    "replay_config": "{}",
    "trajectory": [
        {"action": "ls", "observation": "README", "response": "look", "execution_time": 0.25, "query": [{"role": "system", "content": "act"}, {"role": "user", "content": "solve"}]},
        {"action": "submit", "observation": "", "response": "submit", "execution_time": 0.5, "query": [{"role": "system", "content": "act"}, {"role": "user", "content": "solve"}, {"role": "assistant", "content": "look"}, {"role": "user", "content": "README"}]},
    ],
    "history": [],
}  # fmt: skip


def _v0(ident: int, second: int, **more: Any) -> dict[str, Any]:
    return {"id": ident, "timestamp": f"2025-05-01T10:00:{second:02d}.000", **more}


def _v0_call(response: str) -> dict[str, Any]:
    return {"function_name": "bash", "tool_call_id": f"k{response}", "model_response": {"id": response}}


OPENHANDS = jsonl(
    {
        "instance_id": "x__1",
        "instruction": "solve",
        "history": [
            _v0(0, 0, source="agent", action="system", args={"content": "You are OH."}),
            _v0(1, 0, source="user", action="message", args={"content": "solve"}),
            _v0(
                2, 5, source="agent", action="run", args={"command": "ls"}, tool_call_metadata=_v0_call("r1")
            ),
            _v0(
                3,
                6,
                source="agent",
                cause=2,
                observation="run",
                content="README",
                tool_call_metadata=_v0_call("r1"),
            ),
            [
                _v0(
                    4,
                    9,
                    source="agent",
                    action="finish",
                    args={"thought": "done"},
                    tool_call_metadata=_v0_call("r2"),
                )
            ],
        ],
        "metrics": {
            "token_usages": [
                {"response_id": "r1", "prompt_tokens": 90, "completion_tokens": 9, "cache_read_tokens": 10}
            ],
            "response_latencies": [{"response_id": "r1", "latency": 4.0}],
        },
    }
)


def _completion(at: float, messages: list[dict[str, Any]], answer: str) -> bytes:
    usage = {"prompt_tokens": 50, "completion_tokens": 5, "prompt_tokens_details": {"cached_tokens": 20}}
    response = {
        "id": "x",
        "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": answer}}],
        "usage": usage,
    }
    return doc(
        {
            "messages": messages,
            "tools": [{"type": "function"}],
            "kwargs": {},
            "response": response,
            "timestamp": at,
            "latency_sec": 1.0,
        }
    )


_FIRST = [{"role": "system", "content": "sys"}, {"role": "user", "content": "hi"}]
_SECOND = [*_FIRST, {"role": "assistant", "content": "yo"}, {"role": "user", "content": "more"}]

SDK_EVENTS = jsonl(
    {"kind": "SystemPromptEvent", "timestamp": "2026-06-16T05:39:18", "system_prompt": {"text": "sys"}, "tools": [{"name": "t"}]},
    {"kind": "MessageEvent", "timestamp": "2026-06-16T05:39:19", "llm_message": {"role": "user", "content": [{"type": "text", "text": "go"}]}},
    {"kind": "ActionEvent", "timestamp": "2026-06-16T05:39:25", "tool_call_id": "k1", "tool_call": {"name": "bash", "arguments": "{}"}, "llm_response_id": "r1", "thought": [{"type": "text", "text": "t"}]},
    {"kind": "ActionEvent", "timestamp": "2026-06-16T05:39:25", "tool_call_id": "k2", "tool_call": {"name": "bash", "arguments": "{}"}, "llm_response_id": "r1", "thought": []},
    {"kind": "ObservationEvent", "timestamp": "2026-06-16T05:39:26", "tool_call_id": "k1", "observation": {"content": [{"type": "text", "text": "a"}]}},
    {"kind": "ObservationEvent", "timestamp": "2026-06-16T05:39:27", "tool_call_id": "k2", "observation": {"content": [{"type": "text", "text": "b"}]}},
    {"kind": "MessageEvent", "timestamp": "2026-06-16T05:39:30", "llm_message": {"role": "assistant", "content": [{"type": "text", "text": "done"}]}},
)  # fmt: skip

CLINE = {
    "version": 1,
    "updated_at": "2026-04-22T17:42:10.123Z",
    "agent": "lead",
    "sessionId": "cl1",
    "messages": [
        {"role": "user", "content": [text("hi")], "ts": 1745343730000},
        {"role": "assistant", "content": [tool_use("t1", "read")], "ts": 1745343733000, "metrics": {"inputTokens": 100, "outputTokens": 7, "cacheReadTokens": 40}},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "x"}], "ts": 1745343734000},
        {"role": "assistant", "content": [text("done")], "ts": 1745343736000, "metrics": {"inputTokens": 120, "outputTokens": 3, "cacheReadTokens": 100}},
    ],
    "system_prompt": "You are Cline",
}  # fmt: skip
CLINE_TASK = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": [text("yo")], "ts": 1}]
CLINE_UI = [
    {
        "ts": 1780000000000,
        "type": "say",
        "say": "api_req_started",
        "text": json.dumps({"tokensIn": 12, "tokensOut": 21, "cacheWrites": 9, "cacheReads": 40}),
    }
]

LMCACHE = jsonl(
    {"timestamp": 1760428258000000, "input": "system: be\nuser: go", "output": "ok", "session_id": "L"},
    {
        "timestamp": 1760428269000000,
        "input": "system: be\nuser: go\nmore and more",
        "output": "ok",
        "session_id": "L",
    },
    {"timestamp": 1760428262000000, "input": "system: be\nuser: go\nmore", "output": "ok", "session_id": "L"},
)
LMCACHE_AGENTIC = jsonl(
    {"session_id": "A", "model": "m", "input": _FIRST, "output_length": 9, "pre_gap": 0},
    {"session_id": "A", "model": "m", "input": _SECOND, "output_length": 7, "pre_gap": 1.5},
)


def _span(name: str, start: int, end: int, messages: Any, output: str) -> dict[str, Any]:
    attributes = {
        "gen_ai.operation.name": "chat",
        "gen_ai.conversation.id": "conv",
        "gen_ai.input.messages": json.dumps(messages),
        "gen_ai.output.messages": json.dumps(
            [{"role": "assistant", "parts": [{"type": "text", "content": output}]}]
        ),
        "gen_ai.usage.input_tokens": 100,
        "gen_ai.usage.cache_read.input_tokens": 60,
        "gen_ai.usage.output_tokens": 5,
        "gen_ai.response.time_to_first_chunk": 0.5,
        "gen_ai.response.finish_reasons": ["stop"],
    }
    times = {"start_time": f"2026-06-01T10:00:{start:02d}Z", "end_time": f"2026-06-01T10:00:{end:02d}Z"}
    return {"span_id": name, "name": "chat m", **times, "attributes": attributes}


def _part(role: str, text: str) -> dict[str, Any]:
    return {"role": role, "parts": [{"type": "text", "content": text}]}


OTEL = {
    "trace_id": "t",
    "spans": [
        _span("1", 0, 2, [_part("user", "hi")], "yo"),
        _span("2", 5, 7, [_part("user", "hi"), _part("assistant", "yo"), _part("user", "more")], "ok"),
        _span("3", 5, 8, [_part("user", "sub task")], "fine"),
        {"span_id": "4", "name": "execute_tool x", "attributes": {"gen_ai.operation.name": "execute_tool"}},
    ],
}


def _litellm(start: float, messages: list[dict[str, Any]], answer: str) -> dict[str, Any]:
    response = {"choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": answer}}]}
    times = {"startTime": start, "completionStartTime": start + 0.5, "endTime": start + 2}
    return {
        "id": "x",
        "trace_id": "tr",
        "call_type": "acompletion",
        **times,
        "prompt_tokens": 9,
        "completion_tokens": 3,
        "messages": messages,
        "response": response,
        "status": "success",
    }


SSE = "\n".join(
    "data: " + json.dumps(event)
    for event in (
        {
            "type": "message_start",
            "message": {"usage": {"input_tokens": 5, "cache_read_input_tokens": 95, "output_tokens": 1}},
        },
        {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "tool_use", "id": "t1", "name": "Bash", "input": {}},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '{"c":'},
        },
        {
            "type": "content_block_delta",
            "index": 0,
            "delta": {"type": "input_json_delta", "partial_json": '"ls"}'},
        },
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 31}},
        {"type": "message_stop"},
    )
)
CLAUDE_TRACE = jsonl(
    {
        "request": {
            "timestamp": 1780000000.0,
            "url": "https://api.example/v1/messages?beta=true",
            "body": {
                "system": [text("x-anthropic-billing-header: cch=1;"), text("be")],
                "messages": [{"role": "user", "content": "go"}],
                "tools": [{"name": "Bash", "input_schema": {}}],
                "max_tokens": 4096,
                "metadata": {"user_id": "user_x_account_y_session_z"},
            },
        },
        "response": {"timestamp": 1780000003.0, "status_code": 200, "body_raw": SSE},
        "logged_at": "2026-05-28T20:26:44Z",
    },
    {
        "request": {"timestamp": 1, "url": "https://api.example/hello", "body": None},
        "response": {},
        "logged_at": "x",
    },
)
SHAREGPT = [
    {
        "id": "g",
        "conversations": [
            {"from": "human", "value": "hi"},
            {"from": "gpt", "value": "yo"},
            {"from": "human", "value": "more"},
            {"from": "gpt", "value": "ok"},
        ],
    }
]
VLLM = [{"id": "v", "messages": [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "yo"}]}]
GEMINI = {
    "sessionId": "gem",
    "projectHash": "p",
    "messages": [
        {"id": "1", "timestamp": "2026-06-01T10:00:00Z", "type": "user", "content": "hi"},
        {"id": "2", "timestamp": "2026-06-01T10:00:05Z", "type": "gemini", "content": "", "toolCalls": [{"id": "k", "name": "ls", "args": {}, "result": [{"functionResponse": {"response": {"output": "README"}}}], "timestamp": "2026-06-01T10:00:06Z"}], "tokens": {"input": 100, "output": 8, "cached": 60, "thoughts": 3}},
        {"id": "3", "timestamp": "2026-06-01T10:00:09Z", "type": "gemini", "content": "done", "tokens": {"input": 120, "output": 2, "cached": 100, "thoughts": 0}},
    ],
}  # fmt: skip
AIDER = b"""
# aider chat started at 2026-06-01 10:00:00

> Aider v0.86
#### add a flag

I add it.

> Tokens: 12k sent, 1.1k cache hit, 412 received.

#### thanks

Welcome.
> Tokens: 13k sent, 20 received.
"""


FILES: dict[str, tuple[dict[str, bytes], tuple[int, int, int]]] = {
    "claude-code": ({"s1.jsonl": CLAUDE_MAIN, "s1/subagents/agent-z9.jsonl": CLAUDE_SUB}, (2, 1, 3)),
    "codex": ({"rollout-1.jsonl": CODEX}, (1, 0, 3)),
    "weka": ({"trace_1.json": doc(WEKA)}, (2, 1, 5)),
    "mooncake": ({"m.jsonl": MOONCAKE}, (3, 0, 3)),
    "bailian": ({"b.jsonl": BAILIAN}, (2, 0, 3)),
    "azure": ({"a.csv": AZURE}, (2, 0, 2)),
    "burstgpt": ({"b.csv": BURSTGPT}, (2, 0, 3)),
    "tracelab": ({"round_trace.jsonl": TRACELAB}, (1, 0, 2)),
    "mini-swe-agent": ({"x.traj.json": doc(MINI)}, (1, 0, 2)),
    "swe-agent": ({"x.traj": doc(SWE)}, (1, 0, 2)),
    "openhands-output": ({"output.jsonl": OPENHANDS}, (1, 0, 2)),
    "openhands-completions": ({"logs/m-1.json": _completion(100.0, _FIRST, "yo"), "logs/m-2.json": _completion(104.0, _SECOND, "ok")}, (1, 0, 2)),
    "openhands-events": ({"events.jsonl": SDK_EVENTS}, (1, 0, 2)),
    "cline": ({"cl1.messages.json": doc(CLINE)}, (1, 0, 2)),
    "cline-task": ({"9/api_conversation_history.json": doc(CLINE_TASK), "9/ui_messages.json": doc(CLINE_UI)}, (1, 0, 1)),
    "lmcache": ({"l.jsonl": LMCACHE}, (1, 0, 3)),
    "lmcache-agentic": ({"l.jsonl": LMCACHE_AGENTIC}, (1, 0, 2)),
    "otel": ({"o.json": doc(OTEL)}, (2, 1, 3)),
    "litellm": ({"l.jsonl": jsonl(_litellm(100, _FIRST, "yo"), _litellm(105, _SECOND, "ok"))}, (1, 0, 2)),
    "claude-trace": ({"log.jsonl": CLAUDE_TRACE}, (1, 0, 1)),
    "sharegpt": ({"s.json": doc(SHAREGPT)}, (1, 0, 2)),
    "vllm": ({"v.json": doc(VLLM)}, (1, 0, 1)),
    "gemini": ({"session-1.json": doc(GEMINI)}, (1, 0, 2)),
    "aider": ({".aider.chat.history.md": AIDER}, (1, 0, 2)),
    "opencode": (opencode_files(), (2, 1, 3)),
}  # fmt: skip


def write(folder: Path, name: str) -> Path:
    """Write the files of one format below a folder; the folder."""
    for path, content in FILES[name][0].items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
    return folder
