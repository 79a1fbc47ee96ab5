"""Broken prefixes: every prompt the same but for its nonce, and no two that begin alike."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loadgen.errors import InputError
from loadgen.record.breaking import break_prefix
from loadgen.record.nonce import inject, normalise
from loadgen.trace.model import VERSION, Header, Session, Turn
from loadgen.trace.prefix import prefixes
from loadgen.trace.reader import TraceFile, open_trace
from loadgen.trace.writer import TraceWriter

ZEROED = "x-anthropic-billing-header: cc_version=2; cch=00000;\nYou are."


def a_trace(path: Path) -> Path:
    with TraceWriter(path, Header(version=VERSION, fidelity="bodies")) as writer:
        system, long = writer.json_blob(ZEROED), writer.json_blob("long " * 1000)
        answer = {"role": "assistant", "content": "a"}
        for name in ("s1", "s2"):
            writer.session(Session(id=name, system=system))
            first = {"role": "user", "content": {"blob": long}}
            writer.turn(Turn(session=name, index=0, append=[first], answer=answer))
            writer.turn(Turn(session=name, index=1, append=[{"role": "user", "content": "b"}], answer=answer))
            writer.turn(Turn(session=name, index=1, attempt=2, answer=answer))
            writer.turn(
                Turn(session=name, index=2, keep=1, append=[{"role": "user", "content": "c"}], answer=answer)
            )
            writer.end(name)
    return path


def prompts(trace: TraceFile) -> list[list[Any]]:
    found = []
    for session in trace.sessions:
        head = [{"role": "system", "content": trace.blob(session.system).json}] if session.system else []
        prompt: list[Any] = []
        last: list[Any] = []
        for turn in trace.turns(session.id):
            if turn.append is not None:
                prompt = last[: turn.keep] + turn.append
                found.append(head + prompt)
            last = prompt + ([turn.answer] if turn.answer else [])
    return found


def test_only_the_nonce_differs_and_nothing_is_shared(tmp_path: Path) -> None:
    source, target = a_trace(tmp_path / "a.jsonl"), tmp_path / "b.jsonl"
    assert break_prefix(source, target) == 8
    with open_trace(source) as before, open_trace(target) as after:
        for one, other in zip(prompts(before), prompts(after), strict=True):
            assert one[1:] == other[1:]
            system, nonce = normalise(other[0]["content"])
            assert system == one[0]["content"]
            assert nonce != "00000"
        sent = [
            (session, turn) for session in after.sessions for turn in after.turns(session.id) if turn.append
        ]
        assert [prefix.shared for prefix in prefixes(sent)] == [0] * 6
    with pytest.raises(InputError, match="exists"):
        break_prefix(source, target)


def test_a_system_prompt_without_nonce_gets_one_before_it() -> None:
    assert inject("You are.", "abcde") == "x-anthropic-billing-header: cch=abcde;\nYou are."
    assert inject(None, "abcde") == "x-anthropic-billing-header: cch=abcde;"


def test_a_trace_without_messages_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "l.jsonl"
    with TraceWriter(path, Header(version=VERSION, fidelity="lengths")) as writer:
        writer.session(Session(id="s"))
        writer.turn(Turn(session="s", index=0, input_tokens=5))
    with pytest.raises(InputError, match="no messages"):
        break_prefix(path, tmp_path / "x.jsonl")
