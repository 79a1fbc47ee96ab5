"""opencode as its versions 1.0, 1.2 and 1.18 were seen to write: one message a call, compactions, shell, failures."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from loadgen.trace.importing import import_trace
from loadgen.trace.reader import TraceFile, open_trace
from tests.trace import fixtures_agents
from tests.trace.test_formats import prompts, turns

Row = dict[str, Any]


class Log:
    """Writes messages and parts with rising ids and times, as the tool does."""

    def __init__(self, version: str = "1.18.33") -> None:
        self.version = version
        self.messages: list[tuple[str, str, Row]] = []
        self.parts: list[tuple[str, str, str, Row]] = []
        self.clock = 1_780_000_000_000
        self.number = 0

    def at(self, milliseconds: int) -> int:
        self.clock += milliseconds
        return self.clock

    def message(self, session: str, *parts: Row, **fields: Any) -> str:
        name = f"msg_{len(self.messages):04}"
        self.messages.append((name, session, fields))
        for part in parts:
            self.number += 1
            self.parts.append((f"prt_{self.number:04}", name, session, part))
        return name

    def user(self, *texts: str, session: str = "ses_a", **part: Any) -> str:
        shown = [{"type": "text", "text": text, **part} for text in texts]
        return self.message(session, *shown, role="user", time={"created": self.at(100)})

    def answer(self, *parts: Row, tokens: Row, session: str = "ses_a", **fields: Any) -> str:
        created = self.at(400)
        text = {"type": "text", "time": {"start": self.at(500), "end": self.at(100)}}
        shown = [{**text, **part} if part.get("type") == "text" else part for part in parts]
        finish = {"type": "step-finish", "reason": "stop", "tokens": tokens}
        return self.message(
            session, {"type": "step-start"}, *shown, finish,
            role="assistant", tokens=tokens, finish="stop",
            time={"created": created, "completed": self.at(300)}, **fields,
        )  # fmt: skip

    def write(self, folder: Path, parents: dict[str, str] | None = None) -> Path:
        path = folder / "opencode.db"
        with sqlite3.connect(path) as database:
            database.execute(
                "CREATE TABLE session (id text, parent_id text, version text, time_created integer)"
            )
            database.execute(
                "CREATE TABLE message (id text, session_id text, time_created integer, data text)"
            )
            database.execute("CREATE TABLE part (id text, message_id text, session_id text, data text)")
            for session in dict.fromkeys(row[1] for row in self.messages):
                row = (session, (parents or {}).get(session), self.version, 1)
                database.execute("INSERT INTO session VALUES (?, ?, ?, ?)", row)
            for name, session, data in self.messages:
                database.execute("INSERT INTO message VALUES (?, ?, 1, ?)", (name, session, json.dumps(data)))
            for part, name, session, data in self.parts:
                database.execute(
                    "INSERT INTO part VALUES (?, ?, ?, ?)", (part, name, session, json.dumps(data))
                )
        database.close()
        return path


def usage(output: int, total: int | None = None) -> Row:
    tokens: Row = {"input": 30, "output": output, "reasoning": 5, "cache": {"read": 70, "write": 0}}
    return tokens if total is None else {**tokens, "total": total}


def text(content: str) -> Row:
    return {"type": "text", "text": content}


def imported(tmp_path: Path, log: Log, **parents: str) -> tuple[TraceFile, dict[str, Any]]:
    (tmp_path / "in").mkdir()
    done = import_trace([log.write(tmp_path / "in", parents)], tmp_path / "out.jsonl")
    assert done.format.name == "opencode"
    trace = open_trace(done.path)
    return trace, trace.header.made or {}


def test_the_database_is_read_without_touching_it(tmp_path: Path) -> None:
    path = tmp_path / "opencode.db"
    fixtures_agents.opencode_database(path)
    (tmp_path / "o").mkdir()
    before = (path.read_bytes(), sorted(p.name for p in tmp_path.iterdir()))
    done = import_trace([path], tmp_path / "o" / "out.jsonl")
    assert (path.read_bytes(), sorted(p.name for p in tmp_path.iterdir())) == before
    assert (done.counts["sessions"], done.counts["sub_agents"], done.counts["turns"]) == (2, 1, 3)
    with open_trace(done.path) as trace:
        first, second = turns(trace)
        assert (first.input_tokens, first.output_tokens, first.cached_tokens) == (235, 16, 210)
        assert [m["role"] for m in second.append or []] == ["tool"]


def test_an_answer_ends_with_its_text_and_a_person_waits_from_then(tmp_path: Path) -> None:
    log = Log()
    log.user("one")
    log.answer(text("first"), tokens=usage(10, 115))
    log.user("two")
    log.answer(text("second"), tokens=usage(10, 115))
    trace, _ = imported(tmp_path, log)
    with trace:
        first, second = turns(trace)
        assert first.seen is not None
        assert first.seen.e2e_s == 0.6
        assert second.gap is not None
        assert (second.gap.kind, second.gap.s) == ("human", 0.8)


@pytest.mark.parametrize(("tokens", "output"), [(usage(10, 115), 15), (usage(15, 115), 15), (usage(15), 15)])
def test_the_total_tells_whether_output_holds_the_reasoning(tmp_path: Path, tokens: Row, output: int) -> None:
    log = Log()
    log.user("one")
    log.answer(text("first"), tokens=tokens)
    trace, _ = imported(tmp_path, log)
    with trace:
        (turn,) = turns(trace)
        assert (turn.input_tokens, turn.output_tokens, turn.reasoning_tokens) == (100, output, 5)


@pytest.mark.parametrize("version", ["1.18.14", "1.18.17"])
def test_a_compaction_replaces_all_but_its_tail(tmp_path: Path, version: str) -> None:
    log = Log(version)
    log.user("one")
    log.answer(text("first"), tokens=usage(10, 115))
    log.user("two")
    tail = log.answer(text("second"), tokens=usage(10, 115))
    part = {"type": "compaction", "auto": True, "tail_start_id": tail}
    log.message("ses_a", part, role="user", time={"created": log.at(10)})
    log.answer(text("in short"), tokens=usage(10, 115), summary=True, mode="compaction")
    log.user("go on", synthetic=True)
    log.answer(text("third"), tokens=usage(10, 115))
    trace, made = imported(tmp_path, log)
    with trace:
        assert made["notes"] == {"compaction; its instructions are not in the log": 1}
        summary, after = prompts(trace)[2:]
        if version == "1.18.14":  # the conversation itself was sent
            question = "What did we do so far?"
            assert [m["content"] for m in summary] == ["one", "first", "two", "second", question]
        else:  # its text was
            (asked,) = summary
            assert "[User]: one\n[Assistant]: first\n[User]: two" in asked["content"]
            assert "second" not in asked["content"]
        assert [(m["role"], m["content"]) for m in after] == [
            ("user", "What did we do so far?"),
            ("assistant", "in short"),
            ("assistant", "second"),
            ("user", "go on"),
        ]
        assert [turn.gap.kind for turn in turns(trace)[1:] if turn.gap] == ["human", "tool", "tool"]


def test_the_users_shell_is_no_call_and_failures_are_counted(tmp_path: Path) -> None:
    log = Log()
    none = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}
    log.user("The following tool was executed by the user", synthetic=True)
    state = {"status": "completed", "input": {"command": "ls"}, "output": "README"}
    shell = {"type": "tool", "tool": "bash", "callID": "u1", "state": state}
    log.message("ses_a", shell, role="assistant", tokens=none, time={"created": log.at(5)})
    log.user("one")
    log.message(
        "ses_a", role="assistant", tokens=none, error={"name": "APIError"}, time={"created": log.at(5)}
    )
    log.user("two")
    aborted = ({"type": "step-start"}, text("half an"))
    fields = {
        "error": {"name": "MessageAbortedError"},
        "time": {"created": log.at(5), "completed": log.at(900)},
    }
    log.message("ses_a", *aborted, role="assistant", tokens=none, **fields)
    log.user("three")
    log.answer(text("whole"), tokens=usage(10, 115))
    trace, made = imported(tmp_path, log)
    with trace:
        assert made["skipped"] == {"request that failed or was aborted before an answer began": 1}
        first, second = turns(trace)
        assert (first.stop, first.input_tokens, first.output_tokens) == ("aborted", None, None)
        assert [m["role"] for m in prompts(trace)[0]] == ["user", "assistant", "tool", "user", "user"]
        assert [m["content"] for m in prompts(trace)[1]][-2:] == ["half an", "three"]
        assert second.output_tokens == 15


def test_a_sub_session_hangs_on_the_tool_call_that_started_it(tmp_path: Path) -> None:
    log = Log()
    log.user("one")
    log.answer(text("first"), tokens=usage(10, 115))
    log.user("two")
    state = {"status": "completed", "input": {}, "output": "found", "metadata": {"sessionId": "ses_b"}}
    task = {"type": "tool", "tool": "task", "callID": "k9", "state": state}
    log.answer(task, tokens=usage(10, 115))
    log.user("look", session="ses_b")
    log.answer(text("found"), tokens=usage(10, 115), session="ses_b")
    trace, _ = imported(tmp_path, log, ses_b="ses_a")
    with trace:
        parent = trace.sessions[1].parent
        assert parent is not None
        assert (parent.session, parent.turn, parent.call_id) == ("ses_a", 1, "k9")


def test_a_cleared_tool_result_is_whole_until_then(tmp_path: Path) -> None:
    log = Log()
    log.user("one")
    time = {"start": log.clock + 500, "end": log.clock + 700, "compacted": log.clock + 2500}
    state = {"status": "completed", "input": {}, "output": "long text", "time": time}
    log.answer({"type": "tool", "tool": "read", "callID": "k1", "state": state}, tokens=usage(10, 115))
    log.answer(text("second"), tokens=usage(10, 115))
    log.user("two")
    log.answer(text("third"), tokens=usage(10, 115))
    trace, _ = imported(tmp_path, log)
    with trace:
        _, before, after = prompts(trace)
        assert before[2]["content"] == "long text"
        assert after[2]["content"] == "[Old tool result content cleared]"
