"""LiteLLM's payloads as proxy 1.108 writes them, and claude-trace 1.0.9's pairs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loadgen.trace.importing import import_trace
from loadgen.trace.reader import open_trace
from tests.trace.test_formats import prompts, turns

Row = dict[str, Any]


def payload(trace: str, start: float, messages: list[Row], answer: Row | None, **more: Any) -> Row:
    details = {
        "prompt_tokens_details": {"cached_tokens": 32},
        "completion_tokens_details": {"reasoning_tokens": 4},
    }
    response = {"choices": [{"finish_reason": "stop", "message": answer}], "usage": details} if answer else {}
    row = {
        "trace_id": trace,
        "session_id": "",
        "call_type": "acompletion",
        "status": "success",
        "startTime": start,
    }
    times = {"completionStartTime": start + 0.5, "endTime": start + 2}
    counts = {"prompt_tokens": 90, "completion_tokens": 30}
    return {**row, **times, **counts, "messages": messages, "response": response, **more}


def said(role: str, content: Any) -> Row:
    return {"role": role, "content": content}


def write(path: Path, rows: list[Row]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def test_litellm_rows_without_a_session_are_put_together_by_content(tmp_path: Path) -> None:
    first = [said("user", "one")]
    second = [*first, said("assistant", "yo"), said("user", "two")]
    rows = [
        payload("random-1", 100, first, said("assistant", "yo")),
        payload("random-2", 110, second, said("assistant", "ok")),
        payload("named", 120, first, said("assistant", "yo")),
        payload("named", 130, second, said("assistant", "ok")),
        payload("named", 140, first, None, status="failure", prompt_tokens=0, completion_tokens=0),
    ]
    done = import_trace([write(tmp_path / "log.jsonl", rows)], tmp_path / "out.jsonl")
    assert (done.counts["sessions"], done.counts["turns"]) == (2, 4)
    with open_trace(done.path) as trace:
        assert (trace.header.made or {})["skipped"] == {"request that failed; nothing was generated": 1}
        assert {session.id for session in trace.sessions} == {"litellm", "named"}
        assert [turn.reasoning_tokens for turn in turns(trace)] == [4, 4]


def test_litellm_logs_the_other_apis_in_their_own_shapes(tmp_path: Path) -> None:
    use = {"type": "tool_use", "id": "k1", "name": "bash", "input": {"command": "ls"}}
    result = {"type": "tool_result", "tool_use_id": "k1", "content": [{"type": "text", "text": "README"}]}
    tools = [{"name": "bash", "description": "d", "input_schema": {"type": "object"}}]
    anthropic = [said("user", "go"), said("assistant", [use]), said("user", [result])]
    call = {"type": "function_call", "call_id": "k1", "name": "bash", "arguments": "{}"}
    output = {"type": "function_call_output", "call_id": "k1", "output": "README"}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}]}
    text = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "done"}]}
    rows = [
        payload("a", 100, anthropic, said("assistant", "ok"), call_type="anthropic_messages", model_parameters={"tools": tools}),
        payload("r", 200, [said("user", "go"), thought, call, output], None, call_type="aresponses",
                model_parameters={"instructions": "be brief", "tools": [{"type": "function", "name": "bash", "parameters": {}}]},
                response={"output": [text], "status": "completed"}),
    ]  # fmt: skip
    done = import_trace([write(tmp_path / "log.jsonl", rows)], tmp_path / "out.jsonl")
    with open_trace(done.path) as trace:
        assert (trace.header.made or {})["notes"].keys() == {
            "time to first token of /v1/messages, which is the proxy's own ping's; left out"
        }
        for number in (0, 1):
            (turn,) = turns(trace, number)
            (prompt,) = prompts(trace, number)
            assert [m["role"] for m in prompt] == ["user", "assistant", "tool"]
            assert prompt[2]["content"] == "README"
            assert turn.answer is not None
            defined = trace.blob(trace.sessions[number].tools or "").json
            assert defined[0]["function"]["name"] == "bash"
        assert turns(trace, 0)[0].seen.ttft_s is None  # type: ignore[union-attr]
        assert turns(trace, 1)[0].answer == said("assistant", "done")
        assert trace.blob(trace.sessions[1].system or "").json == "be brief"


def pair(start: float, body: Row, content: list[Row], logged: str) -> Row:
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 90,
        "cache_creation_input_tokens": 7,
        "output_tokens": 30,
    }
    answer = {"type": "message", "content": content, "usage": usage, "stop_reason": "end_turn"}
    fields = {"model": "m", "max_tokens": 32000, "metadata": {"user_id": "user_x_account__session_z"}}
    request = {
        "timestamp": start,
        "url": "http://127.0.0.1/v1/messages?beta=true",
        "body": {**fields, **body},
    }
    return {"request": request, "response": {"timestamp": start + 0.1, "body": answer}, "logged_at": logged}


def test_claude_trace_ends_with_the_body_and_knows_helpers_and_small_tasks(tmp_path: Path) -> None:
    start = 1780000000.0  # 2026-05-28T20:26:40Z
    tools = {"tools": [{"name": "Task", "input_schema": {}}]}
    task = {"type": "tool_use", "id": "k1", "name": "Task", "input": {"prompt": "count all the files"}}
    reply = {"type": "text", "text": "ok"}
    result = {"type": "tool_result", "tool_use_id": "k1", "content": "two"}
    hint = {"type": "text", "text": "<system-reminder>be brief</system-reminder>"}
    begun = [said("user", "go")]
    asked = said(
        "user", [{"type": "text", "text": "<context>"}, {"type": "text", "text": "count all the files"}]
    )
    rows = [
        pair(start, {"messages": [said("user", "a title")], "model": "claude-3-5-haiku"}, [reply], "2026-05-28T20:26:40.5Z"),
        pair(start + 1, {"messages": begun, **tools}, [task], "2026-05-28T20:26:43Z"),
        pair(start + 4, {"messages": [asked], "tools": [{"name": "Bash", "input_schema": {}}]}, [reply], "2026-05-28T20:26:46Z"),
        pair(start + 7, {"messages": [*begun, said("assistant", [task]), said("user", [result, hint])], **tools}, [reply], "2026-05-28T20:26:48Z"),
    ]  # fmt: skip
    done = import_trace([write(tmp_path / "log.jsonl", rows)], tmp_path / "out.jsonl")
    assert done.format.name == "claude-trace"
    with open_trace(done.path) as trace:
        assert [session.agent for session in trace.sessions] == ["main", "utility", "sub"]
        assert trace.sessions[0].id == "z"
        first, second = turns(trace)
        assert first.seen is not None
        assert first.seen.e2e_s == 2.0
        assert second.gap is not None
        assert (second.gap.kind, second.gap.s) == ("tool", 1.0)  # after the helper's end, and no human's turn
        parent = trace.sessions[2].parent
        assert parent is not None
        assert (parent.session, parent.turn, parent.call_id, parent.wait) == ("z", 0, "k1", True)
