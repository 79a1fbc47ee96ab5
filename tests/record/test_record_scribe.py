"""Whatever agents do, the trace is valid and its formula gives back every prompt that was sent."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import tokens
from loadgen.record.exchange import Ending, Exchange, Ready
from loadgen.record.finish import finish
from loadgen.record.journal import Journal, journal_path
from loadgen.record.redact import Redactor
from loadgen.record.scribe import Limits, Scribe
from loadgen.trace.model import VERSION, Header
from loadgen.trace.reader import TraceFile, open_trace
from loadgen.trace.writer import TraceWriter

TOKENIZER = tokens.get("tekken")
LONG = "a long text " * 300
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "one"},
    {"role": "user", "content": LONG},
    {"role": "user", "content": "This session is being continued: summary"},
    {"role": "assistant", "content": "yes"},
    {"role": "assistant", "content": LONG + "yes"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "c1",
                "type": "function",
                "function": {"name": "Task", "arguments": '{"prompt":"do this thing"}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "result"},
    {"role": "user", "content": "do this thing"},
]
ENDINGS: list[Ending] = ["complete", "complete", "complete", "client_abort", "upstream_abort"]


@st.composite
def asks(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "messages": draw(st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=5)),
        "continue": draw(
            st.integers(0, 3)
        ),  # append to what an earlier ask sent and got, so that stories arise
        "answer": draw(st.sampled_from([None, *MESSAGES[3:6]])),
        "ending": draw(st.sampled_from(ENDINGS)),
        "status": draw(st.sampled_from([200, 200, 200, 200, 429, None])),
        "system": draw(st.sampled_from([None, "S1", "S2"])),
        "session": draw(st.sampled_from([None, "x", "y"])),
        "retry": draw(st.booleans()),
        "length": draw(st.integers(1, 3)),
        "usage": draw(
            st.sampled_from(
                [
                    None,
                    {
                        "prompt_tokens": 5,
                        "completion_tokens": 2,
                        "prompt_tokens_details": {"cached_tokens": 9},
                    },
                ]
            )
        ),
    }


def play(
    folder: Path, story: list[dict[str, Any]], limits: Limits
) -> tuple[Scribe, list[dict[str, Any]], list[list[Any]]]:
    """The scribe, the list of calls, and the messages that each call sent."""
    path = folder / "t.jsonl"
    fidelity = {"fidelity": "blocks", "block_size": 64} if limits.hash_only else {"fidelity": "bodies"}
    sent: list[list[Any]] = []
    with (
        TraceWriter(path, Header(version=VERSION, **fidelity), live=True) as writer,
        Journal(journal_path(path)) as journal,
    ):
        scribe = Scribe(
            writer=writer,
            journal=journal,
            tokenizer=TOKENIZER,
            redactor=Redactor(TOKENIZER.count),
            ready=Ready(url="", mono_ns=0, wall_ns=0),
            limits=limits,
            say=lambda text: None,
        )
        now = 0
        for number, ask in enumerate(story):
            messages = ask["messages"]
            if ask["continue"] and sent:
                earlier = story[max(number - ask["continue"], 0)]
                messages = (
                    sent[max(number - ask["continue"], 0)]
                    + ([earlier["answer"]] if earlier["answer"] else [])
                    + messages[:1]
                )
            sent.append(messages)
            system = [{"role": "system", "content": ask["system"]}] if ask["system"] else []
            body = {"model": "m", "messages": system + messages}
            answer = {
                "id": str(number),
                "choices": [{"message": ask["answer"], "finish_reason": "stop"}],
                "usage": ask["usage"],
            }
            headers = [("x-session-id", ask["session"])] if ask["session"] else []
            headers += [("x-stainless-retry-count", "1")] if ask["retry"] else []
            status = ask["status"] if ask["ending"] != "complete" or ask["status"] else 200
            now += 10**9
            scribe.take(
                Exchange(
                    number=number,
                    method="POST",
                    target="/v1/chat/completions",
                    version="1.1",
                    request_headers=headers,
                    request_body=json.dumps(body).encode(),
                    status=status,
                    response_body=json.dumps(answer).encode() if status == 200 else b"{}",
                    received_ns=now,
                    end_ns=now + ask["length"] * 10**9,
                    ending=ask["ending"],
                )
            )
        scribe.end()
    finish(path, path)
    lines = [json.loads(line) for line in journal_path(path).read_text().splitlines()]
    return scribe, lines, sent


def whole(trace: TraceFile, message: dict[str, Any]) -> dict[str, Any]:
    content = message.get("content")
    return message | {"content": trace.blob(content["blob"]).json} if isinstance(content, dict) else message


def prompts(trace: TraceFile) -> dict[tuple[str, int], list[Any]]:
    found: dict[tuple[str, int], list[Any]] = {}
    for session in trace.sessions:
        base: list[Any] = []
        for turn in trace.turns(session.id):
            key = (session.id, turn.index)
            if turn.append is not None:
                found[key] = base[: turn.keep] + [whole(trace, message) for message in turn.append]
            following = found[key] + ([whole(trace, turn.answer)] if turn.answer else [])
            base = (
                following
                if turn.attempt == max(t.attempt for t in trace.turns(session.id) if t.index == turn.index)
                else base
            )
    return found


@settings(max_examples=60, deadline=None)
@given(st.lists(asks(), min_size=1, max_size=8))
def test_every_story_makes_a_valid_trace_of_what_was_sent(story: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scribe, lines, sent = play(Path(folder), story, Limits())
        assert scribe.stopped is None
        assert not [p for line in lines for p in line.get("problems", ()) if "not recorded" in p]
        with open_trace(Path(folder) / "t.jsonl") as trace:
            assert trace.open_sessions() == []
            found = prompts(trace)
            for line in lines:
                if "session" in line:
                    got = [
                        message | {"content": message.get("content")}
                        for message in found[line["session"], line.get("turn", 0)]
                    ]
                    assert got == sent[line.get("n", 0)]
            turns = sum(len(trace.turns(session.id)) for session in trace.sessions)
            assert turns == scribe.figures.turns == sum("session" in line for line in lines)


@settings(max_examples=30, deadline=None)
@given(st.lists(asks(), min_size=1, max_size=8))
def test_every_story_makes_a_valid_trace_without_content(story: list[dict[str, Any]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        scribe, lines, _ = play(Path(folder), story, Limits(hash_only=True))
        assert scribe.stopped is None
        assert not [p for line in lines for p in line.get("problems", ()) if "not recorded" in p]
        with open_trace(Path(folder) / "t.jsonl") as trace:
            assert sum(len(trace.turns(session.id)) for session in trace.sessions) == scribe.figures.turns


def test_an_error_of_ours_costs_one_turn_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ask = {
        "messages": MESSAGES[:1],
        "continue": 0,
        "answer": MESSAGES[3],
        "ending": "complete",
        "status": 200,
        "system": None,
        "session": None,
        "retry": False,
        "length": 1,
        "usage": None,
    }
    original = Scribe._usage
    calls = iter(range(10))

    def failing(self: Scribe, *arguments: Any) -> None:
        if next(calls) == 0:
            raise RecursionError
        original(self, *arguments)

    monkeypatch.setattr(Scribe, "_usage", failing)
    scribe, lines, _ = play(tmp_path, [ask, ask | {"messages": MESSAGES[7:]}], Limits())
    assert "RecursionError" in lines[0]["problems"][0]
    assert (scribe.figures.turns, scribe.figures.unread, scribe.stopped) == (1, 1, None)


@pytest.mark.parametrize(
    ("ending", "whole_answer", "stop"),
    [
        ("complete", True, "stop"),
        ("client_abort", True, "stop"),  # it closed on the last event: the answer is whole
        ("client_abort", False, "aborted"),
        ("upstream_abort", False, "truncated"),
    ],
)
def test_why_an_answer_ended(tmp_path: Path, ending: Ending, whole_answer: bool, stop: str) -> None:
    chunks = [
        {"choices": [{"index": 0, "delta": {"role": "assistant", "content": "hello"}}]},
        {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]},
    ]
    events = [b"data: " + json.dumps(chunk).encode() + b"\n\n" for chunk in chunks]
    events = [*events, b"data: [DONE]\n\n"] if whole_answer else events[:1]
    path = tmp_path / "t.jsonl"
    with (
        TraceWriter(path, Header(version=VERSION, fidelity="bodies"), live=True) as writer,
        Journal(journal_path(path)) as journal,
    ):
        scribe = Scribe(
            writer=writer,
            journal=journal,
            tokenizer=TOKENIZER,
            redactor=Redactor(TOKENIZER.count),
            ready=Ready(url="", mono_ns=0, wall_ns=0),
            limits=Limits(),
            say=lambda text: None,
        )
        scribe.take(
            Exchange(
                number=0,
                method="POST",
                target="/v1/chat/completions",
                version="1.1",
                request_headers=[],
                request_body=json.dumps(
                    {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi"}]}
                ).encode(),
                status=200,
                response_headers=[("content-type", "text/event-stream")],
                response_body=b"".join(events),
                marks=[(2, len(b"".join(events)))],
                received_ns=1,
                end_ns=10**9,
                ending=ending,
            )
        )
        scribe.end()
    finish(path, path)
    trace = open_trace(path)
    (turn,) = trace.turns(trace.sessions[0].id)
    assert turn.stop == stop
    assert scribe.figures.aborted == (stop != "stop")
