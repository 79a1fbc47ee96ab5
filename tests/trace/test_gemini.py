"""Gemini CLI 0.61's line form: context set at once, rewritten rows, results in user rows, resumed sessions, helpers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from loadgen.trace.importing import import_trace
from loadgen.trace.reader import open_trace
from tests.trace.test_formats import prompts, turns

Row = dict[str, Any]


def user(name: str, second: int, *parts: Row) -> Row:
    return {
        "id": name,
        "timestamp": f"2026-06-01T10:00:{second:02}.000Z",
        "type": "user",
        "content": list(parts),
    }


def gemini(name: str, second: int, text: str, *tools: Row) -> Row:
    tokens = {"input": 100, "output": 8, "cached": 60, "thoughts": 3, "tool": 0, "total": 111}
    row = {"id": name, "timestamp": f"2026-06-01T10:00:{second:02}.000Z", "type": "gemini", "content": text}
    thoughts = [{"subject": "Plan", "description": "hm"}]
    return {**row, "thoughts": thoughts, "tokens": tokens, **({"toolCalls": list(tools)} if tools else {})}


def response(name: str, text: str) -> Row:
    return {"functionResponse": {"id": name, "name": "ls", "response": {"output": text}}}


def tool(name: str, **more: Any) -> Row:
    return {"id": name, "name": "ls", "args": {"p": "."}, "result": [response(name, "README")], **more}


def write(path: Path, *rows: Row) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


CONTEXT = user("c", 0, {"text": "<session_context>"})
HEAD = {"sessionId": "s1", "projectHash": "p", "startTime": "2026-06-01T10:00:00Z", "kind": "main"}


def test_a_session_is_read_as_it_was_sent(tmp_path: Path) -> None:
    chats = tmp_path / "in" / "chats"
    asked = {"functionCall": {"id": "k1", "name": "ls", "args": {"p": "."}}}
    restored = [
        {**CONTEXT, "timestamp": "2026-06-01T10:00:20.000Z"},
        user("u1", 20, {"text": "look"}),
        {**gemini("g1", 20, ""), "content": [{"text": "hm", "thought": True}, {"text": "I look."}, asked]},
        user("g1x", 20, response("k1", "README")),
        {
            "id": "g2",
            "timestamp": "2026-06-01T10:00:20.000Z",
            "type": "gemini",
            "content": [{"text": "Done."}],
        },
    ]
    del restored[2]["tokens"], restored[2]["thoughts"]
    write(
        chats / "session-1.jsonl",
        HEAD,
        {"$set": {"messages": [CONTEXT], "lastUpdated": "x"}},
        user("u1", 1, {"text": "look"}),
        gemini("g1", 4, "I look."),
        {"$set": {"lastUpdated": "x"}},
        gemini("g1", 4, "I look.", tool("k1", agentId="helper")),
        user("r1", 9, response("k1", "README")),
        gemini("g2", 12, "Done."),
        HEAD,
        {"$set": {"messages": restored}},
        user("u2", 21, {"text": "again"}),
        gemini("g3", 23, "Yes."),
    )
    helper = {"sessionId": "helper", "projectHash": "p", "kind": "subagent"}
    write(chats / "s1" / "helper.jsonl", helper, user("h1", 5, {"text": "count"}), gemini("h2", 8, "Two."))
    done = import_trace([tmp_path / "in"], tmp_path / "out.jsonl")
    assert done.format.name == "gemini"
    assert (done.counts["sessions"], done.counts["sub_agents"], done.counts["turns"]) == (2, 1, 4)
    with open_trace(done.path) as trace:
        first, second, third = turns(trace)
        assert [t.output_tokens for t in (first, second, third)] == [11, 11, 11]
        opened, called, resumed = prompts(trace)
        assert [part["text"] for part in opened[0]["content"]] == ["<session_context>", "look"]
        assert [m["role"] for m in called] == ["user", "assistant", "tool"]  # the result stands there once
        assert called[1]["tool_calls"][0]["id"] == "k1"
        assert "reasoning" not in called[1]  # thoughts are not sent again
        assert first.answer is not None
        assert first.answer["reasoning"] == "hm"
        assert [m["role"] for m in resumed] == ["user", "assistant", "tool", "assistant", "user"]
        assert resumed[1] == called[1]
        assert [t.gap.s for t in (second, third) if t.gap] == [1.0, 9.0]  # from the helper's end, from 12 s
        parent = trace.sessions[1].parent
        assert parent is not None
        assert (parent.turn, parent.call_id, parent.wait) == (0, "k1", True)
