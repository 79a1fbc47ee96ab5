"""A body made of fragments must be the JSON of the prompt that the trace format defines."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import orjson
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from loadgen.replay.content import Contents
from loadgen.replay.transcript import Transcript
from loadgen.replay.wire import chat
from loadgen.replay.wire.api import Output
from loadgen.trace.model import Header, Session, Turn
from loadgen.trace.reader import open_trace
from loadgen.trace.writer import TraceWriter

CONTEXT = 'def f():\n    return "\\u00fc ✓\t"  # "quoted"\nlast'


@pytest.fixture
def contents(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Contents:
    monkeypatch.setenv("LOADGEN_CACHE", str(tmp_path / "cache"))
    (tmp_path / "context.txt").write_text(CONTEXT, encoding="utf-8")
    with TraceWriter(tmp_path / "t.jsonl", Header(version=1, fidelity="messages")) as writer:
        writer.file_blob(tmp_path / "context.txt", hashlib.sha256(CONTEXT.encode()).hexdigest())
        writer.session(Session(id="s"))
        writer.turn(Turn(session="s", index=0, append=[{"role": "user", "content": "x"}]))
        writer.end("s")
    return Contents(open_trace(tmp_path / "t.jsonl"))


REF = "sha256:" + hashlib.sha256(CONTEXT.encode()).hexdigest()


def body(transcript: Transcript) -> dict[str, Any]:
    head, tail = chat.envelope("m", Output(), system=transcript.system)
    found: dict[str, Any] = orjson.loads(b"".join(bytes(part) for part in transcript.body(head, tail)))
    return {"messages": found["messages"]}


def test_a_context_is_sent_as_it_is_with_the_nonce_in_front(contents: Contents) -> None:
    transcript = Transcript(contents, chat.message, nonce="123\n")
    transcript.advance(Turn(session="s", index=0, append=[{"role": "user", "content": {"blob": REF}}]))
    assert body(transcript) == {"messages": [{"role": "user", "content": "123\n" + CONTEXT}]}


def test_the_nonce_goes_into_the_system_prompt_when_there_is_one(contents: Contents) -> None:
    transcript = Transcript(contents, chat.message, system="be brief", nonce="9\n")
    transcript.advance(Turn(session="s", index=0, append=[{"role": "user", "content": "hi"}]))
    assert body(transcript)["messages"] == [
        {"role": "system", "content": "9\nbe brief"},
        {"role": "user", "content": "hi"},
    ]


def test_a_retry_without_messages_repeats_the_prompt(contents: Contents) -> None:
    transcript = Transcript(contents, chat.message)
    transcript.advance(Turn(session="s", index=0, append=[{"role": "user", "content": "hi"}]))
    first = body(transcript)
    transcript.set_answer({"role": "assistant", "content": "from the failed attempt"})
    transcript.advance(Turn(session="s", index=0, attempt=2))
    assert body(transcript) == first


def test_only_texts_in_files_are_kept_in_the_cache(contents: Contents, tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "inline.jsonl", Header(version=1, fidelity="messages")) as writer:
        ref = writer.json_blob("in the trace itself")
    inline = Contents(open_trace(tmp_path / "inline.jsonl"))
    inline.prepare_fragment(ref)
    contents.prepare_fragment(REF)
    contents.prepare_fragment(REF)
    assert (len(inline.files), len(contents.files)) == (0, 1)
    assert [path.name for path in (tmp_path / "cache" / "fragments").iterdir()] == [REF[7:] + ".json"]
    assert bytes(inline.fragment(ref)) == b"in the trace itself"


message = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "tool", "assistant"]), "content": st.text(max_size=12)}
)
turn = st.tuples(
    st.none() | st.integers(0, 6), st.lists(message, max_size=3), st.none() | message, st.booleans()
)


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    turns=st.lists(turn, min_size=1, max_size=8),
    nonce=st.sampled_from(["", "77\n"]),
    system=st.sampled_from([None, "sys"]),
)
def test_every_prompt_is_what_the_format_says(
    contents: Contents, turns: list[Any], nonce: str, system: str | None
) -> None:
    transcript = Transcript(contents, chat.message, system=system, nonce=nonce)
    prompt: list[dict[str, Any]] = []
    answer: dict[str, Any] | None = None
    for index, (keep, append, said, with_context) in enumerate(turns):
        added = append + ([{"role": "user", "content": {"blob": REF}}] if with_context else [])
        transcript.advance(Turn(session="s", index=index, keep=keep, append=added))
        prompt = (prompt + ([answer] if answer else []))[:keep] + added
        assume(prompt)  # a turn without any message is no turn
        expected = [{**m, "content": CONTEXT} if isinstance(m["content"], dict) else dict(m) for m in prompt]
        if system is not None:
            expected.insert(0, {"role": "system", "content": nonce + system})
        found = body(transcript)["messages"]
        if system is None and nonce and expected:
            assert found[0]["content"] in (nonce + expected[0]["content"], expected[0]["content"])
            if prompt[0] is not answer and any(prompt[0] is m for m in added):
                assert found[0]["content"] == nonce + expected[0]["content"]
            found[0]["content"] = expected[0]["content"]
        assert found == expected
        transcript.set_answer(said)
        answer = said
