"""Sessions as agents keep them, made up for these tests after the formats' documentation: Claude Code, Codex, opencode."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any


def jsonl(*rows: Any) -> bytes:
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def doc(value: Any) -> bytes:
    return json.dumps(value).encode()


def claude(
    kind: str, uuid: str, parent: str | None, second: int, message: dict[str, Any], **more: Any
) -> dict[str, Any]:
    at = f"2026-06-01T05:40:{second:02d}.500Z"
    row = {
        "type": kind,
        "uuid": uuid,
        "parentUuid": parent,
        "sessionId": "s1",
        "timestamp": at,
        "isSidechain": False,
    }
    return {**row, "message": message, **more}


def claude_call(
    ident: str, block: dict[str, Any], output: int, stop: str | None, prompt: tuple[int, int, int]
) -> dict[str, Any]:
    usage = {
        "input_tokens": prompt[0],
        "cache_creation_input_tokens": prompt[1],
        "cache_read_input_tokens": prompt[2],
        "output_tokens": output,
    }
    return {
        "id": ident,
        "role": "assistant",
        "model": "m",
        "content": [block],
        "stop_reason": stop,
        "usage": usage,
    }


def tool_use(ident: str, name: str, **arguments: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": ident, "name": name, "input": arguments}


def result(ident: str, text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "tool_result", "tool_use_id": ident, "content": text}]}


def text(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


CLAUDE_MAIN = jsonl(
    {"type": "summary", "summary": "x", "leafUuid": "a3"},
    claude("user", "u1", None, 0, {"role": "user", "content": "fix the test"}),
    claude(
        "assistant",
        "a1",
        "u1",
        5,
        claude_call("m1", text("I look."), 1, None, (12, 100, 0)),
        requestId="r1",
    ),
    claude(
        "assistant",
        "a2",
        "a1",
        6,
        claude_call("m1", tool_use("t1", "Bash", cmd="ls"), 40, "tool_use", (12, 100, 0)),
        requestId="r1",
    ),
    claude(
        "assistant",
        "a3",
        "a2",
        7,
        claude_call("m1", tool_use("t2", "Task", prompt="find it"), 40, "tool_use", (12, 100, 0)),
        requestId="r1",
    ),
    claude("user", "u2", "a2", 8, result("t1", "README")),
    claude("user", "u3", "a3", 20, result("t2", "found"), toolUseResult={"agentId": "z9"}),
    claude(
        "assistant",
        "a4",
        "u3",
        24,
        claude_call("m2", text("Done."), 9, "end_turn", (3, 50, 112)),
        requestId="r2",
    ),
    {"type": "hologram", "uuid": "h"},
)
CLAUDE_SUB = jsonl(
    claude("user", "b1", None, 9, {"role": "user", "content": "find it"}, isSidechain=True, agentId="z9"),
    claude(
        "assistant",
        "b2",
        "b1",
        15,
        claude_call("m9", text("found"), 5, "end_turn", (30, 0, 0)),
        isSidechain=True,
        agentId="z9",
        requestId="r9",
    ),
)


def _codex(second: int, kind: str, **payload: Any) -> dict[str, Any]:
    return {"timestamp": f"2026-06-01T05:00:{second:02d}.000Z", "type": kind, "payload": payload}


def _usage(prompt: int, cached: int, output: int) -> dict[str, int]:
    return {
        "input_tokens": prompt,
        "cached_input_tokens": cached,
        "output_tokens": output,
        "reasoning_output_tokens": 1,
    }


CODEX = jsonl(
    _codex(0, "session_meta", id="c1", source="cli", base_instructions={"text": "You code."}),
    _codex(1, "response_item", type="message", role="user", content=[{"type": "input_text", "text": "list"}]),
    _codex(1, "event_msg", type="user_message", message="list"),
    _codex(3, "response_item", type="function_call", name="shell", arguments='{"c":"ls"}', call_id="k1"),
    _codex(
        3,
        "event_msg",
        type="token_count",
        info={"last_token_usage": _usage(100, 60, 20), "total_token_usage": _usage(100, 60, 20)},
    ),
    _codex(
        3,
        "event_msg",
        type="token_count",
        info={"last_token_usage": _usage(100, 60, 20), "total_token_usage": _usage(100, 60, 20)},
    ),
    _codex(4, "response_item", type="function_call_output", call_id="k1", output="README"),
    _codex(
        6,
        "response_item",
        type="message",
        role="assistant",
        content=[{"type": "output_text", "text": "README"}],
    ),
    _codex(6, "event_msg", type="token_count", info={"total_token_usage": _usage(230, 160, 25)}),
    _codex(7, "compacted", message="we listed files"),
    _codex(
        8, "response_item", type="message", role="user", content=[{"type": "input_text", "text": "again"}]
    ),
    _codex(
        9,
        "response_item",
        type="message",
        role="assistant",
        content=[{"type": "output_text", "text": "README"}],
    ),
)


def opencode_messages() -> list[tuple[str, str, dict[str, Any]]]:
    """(kind, id, object) of an opencode session with one sub-session."""
    tokens = {"total": 251, "input": 20, "output": 14, "reasoning": 2, "cache": {"read": 210, "write": 5}}
    return [
        ("session", "ses_1", {"id": "ses_1", "projectID": "p"}),
        ("session", "ses_2", {"id": "ses_2", "projectID": "p", "parentID": "ses_1"}),
        ("message", "msg_1", {"id": "msg_1", "sessionID": "ses_1", "role": "user", "time": {"created": 1780000000000}}),
        ("message", "msg_2", {"id": "msg_2", "sessionID": "ses_1", "role": "assistant", "time": {"created": 1780000001000, "completed": 1780000009000}, "tokens": tokens}),
        ("message", "msg_3", {"id": "msg_3", "sessionID": "ses_2", "role": "user", "time": {"created": 1780000005000}}),
        ("message", "msg_4", {"id": "msg_4", "sessionID": "ses_2", "role": "assistant", "time": {"created": 1780000005000, "completed": 1780000006000}, "tokens": tokens}),
        ("part", "prt_1", {"id": "prt_1", "messageID": "msg_1", "sessionID": "ses_1", "type": "text", "text": "hi"}),
        ("part", "prt_2", {"id": "prt_2", "messageID": "msg_2", "sessionID": "ses_1", "type": "tool", "tool": "bash", "callID": "k1", "state": {"status": "completed", "input": {}, "output": "README", "time": {"start": 1780000003000, "end": 1780000004000}}}),
        ("part", "prt_3", {"id": "prt_3", "messageID": "msg_2", "sessionID": "ses_1", "type": "step-finish", "reason": "tool-calls", "tokens": tokens}),
        ("part", "prt_4", {"id": "prt_4", "messageID": "msg_2", "sessionID": "ses_1", "type": "text", "text": "done"}),
        ("part", "prt_5", {"id": "prt_5", "messageID": "msg_2", "sessionID": "ses_1", "type": "step-finish", "reason": "stop", "tokens": tokens}),
        ("part", "prt_6", {"id": "prt_6", "messageID": "msg_3", "sessionID": "ses_2", "type": "text", "text": "sub"}),
        ("part", "prt_7", {"id": "prt_7", "messageID": "msg_4", "sessionID": "ses_2", "type": "text", "text": "ok"}),
    ]  # fmt: skip


def opencode_database(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute("CREATE TABLE session (id TEXT, parent_id TEXT, data TEXT)")
        database.execute("CREATE TABLE message (id TEXT, session_id TEXT, data TEXT)")
        database.execute("CREATE TABLE part (id TEXT, message_id TEXT, session_id TEXT, data TEXT)")
        for kind, ident, row in opencode_messages():
            if kind == "session":
                database.execute("INSERT INTO session VALUES (?, ?, '{}')", (ident, row.get("parentID")))
            elif kind == "message":
                database.execute(
                    "INSERT INTO message VALUES (?, ?, ?)", (ident, row["sessionID"], json.dumps(row))
                )
            else:
                database.execute(
                    "INSERT INTO part VALUES (?, ?, ?, ?)",
                    (ident, row["messageID"], row["sessionID"], json.dumps(row)),
                )
    database.close()


def opencode_files() -> dict[str, bytes]:
    below = {"session": "p", "message": "ses_1", "part": "msg_1"}
    return {
        f"storage/{kind}/{below[kind]}/{ident}.json": doc(row) for kind, ident, row in opencode_messages()
    }
