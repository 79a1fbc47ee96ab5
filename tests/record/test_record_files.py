"""Blocks against a plain reference, torn recordings at every byte, and bodies that cannot become turns."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.errors import InputError
from loadgen.record import reading
from loadgen.record.blocks import BLOCK_TOKENS, BlockIndex
from loadgen.record.exchange import Exchange
from loadgen.record.figures import PerfectCache
from loadgen.record.finish import finish
from loadgen.record.recording import Options, Recording, upstream_url
from loadgen.record.store import Entry
from loadgen.trace.model import VERSION, Header, Session, Turn
from loadgen.trace.reader import open_trace
from loadgen.trace.writer import TraceWriter


@given(
    st.lists(st.tuples(st.integers(0, 400), st.integers(0, 100), st.integers(0, 80)), min_size=1, max_size=6)
)
def test_blocks_are_the_longest_shared_beginning(turns: list[tuple[int, int, int]]) -> None:
    """Each turn keeps `kept` tokens of the prompt and answer before it and appends `new` fresh ones."""
    index = BlockIndex()
    fresh = iter(range(10**9))
    before: list[int] = []
    seen: list[list[int]] = []
    for number, (kept, new, output) in enumerate(turns):
        prompt = before[:kept] + [next(fresh) for _ in range(new)]
        answer = [next(fresh) for _ in range(output)]
        blocks, count = index.add("s", number, [array("I", prompt)], array("I", answer), output)
        whole = len(prompt) // BLOCK_TOKENS
        shared = max(
            (
                sum(
                    1
                    for b in range(whole)
                    if prompt[: 64 * (b + 1)] == other[: 64 * (b + 1)] and len(other) >= 64 * (b + 1)
                )
                for other in seen
            ),
            default=0,
        )
        assert (blocks.reuse, blocks.new, blocks.tail_tokens, count) == (
            shared,
            whole - shared,
            len(prompt) % 64,
            len(prompt),
        )
        before = prompt + answer
        seen.append(before)


def test_blocks_count_of_the_answer_only_what_readers_place_there() -> None:
    index = BlockIndex()
    ids = array("I", range(128))
    index.add("s", 0, [ids[:64]], ids[64:], 10)
    blocks, _ = index.add("s", 1, [ids], array("I"), 0)
    assert (blocks.reuse, blocks.new) == (1, 1)


def a_recording(path: Path) -> list[bytes]:
    with TraceWriter(path, Header(version=VERSION, fidelity="bodies"), live=True) as writer:
        system = writer.json_blob("You are.")
        for name in ("s1", "s2"):
            writer.session(Session(id=name, system=system))
        for index in range(2):
            for name in ("s1", "s2"):
                message = {"role": "user", "content": f"{name} {index} ä"}
                writer.turn(
                    Turn(
                        session=name,
                        index=index,
                        append=[message],
                        answer={"role": "assistant", "content": "a"},
                    )
                )
        writer.end("s2")
    return path.read_bytes().splitlines(keepends=True)


def test_a_recording_torn_anywhere_can_be_finished(tmp_path: Path) -> None:
    whole = b"".join(a_recording(tmp_path / "whole.jsonl"))
    header = whole.index(b"\n") + 1
    for size in range(header, len(whole) + 1):
        torn = tmp_path / "torn.jsonl"
        torn.write_bytes(whole[:size])
        cut = finish(torn, torn)
        assert cut == size - (whole.rindex(b"\n", 0, size) + 1)
        with open_trace(torn) as trace:
            assert trace.open_sessions() == []
            turns = sum(trace.turn_count(session.id) for session in trace.sessions)
            assert turns == whole[:size].count(b'\n{"type":"turn"') - (
                whole[:size].rfind(b'\n{"type":"turn"') > whole[:size].rfind(b"\n") - 1
            )


def test_finishing_sorts_packs_and_leaves_no_live_file(tmp_path: Path) -> None:
    live, target = tmp_path / "r.jsonl", tmp_path / "r.jsonl.zst"
    a_recording(live)
    assert finish(live, target) == 0
    assert not live.exists()
    with open_trace(target) as trace:
        assert [session.id for session in trace.sessions] == ["s1", "s2"]
        assert trace.turns("s2")[1].append == [{"role": "user", "content": "s2 1 ä"}]


@pytest.mark.parametrize("content", [b"", b"\n", b"no json\n", b'{"type":"end","session":"x"}\n'])
def test_what_is_no_recording_is_left_alone(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_bytes(content)
    with pytest.raises(InputError):
        finish(path, path)
    assert path.read_bytes() == content


def an_exchange(body: bytes, answer: bytes = b"{}", **fields: object) -> Exchange:
    values: dict[str, object] = {
        "number": 1,
        "method": "POST",
        "target": "/v1/chat/completions?x=1",
        "version": "1.1",
        "request_headers": [],
        "request_body": body,
        "status": 200,
        "response_body": answer,
        "received_ns": 0,
        "end_ns": 9,
        "ending": "complete",
    }
    return Exchange(**(values | fields))  # type: ignore[arg-type]


KEYS = [
    "model",
    "messages",
    "input",
    "role",
    "content",
    "text",
    "type",
    "tools",
    "name",
    "function",
    "arguments",
    "tool_calls",
    "id",
    "index",
    "choices",
    "delta",
    "usage",
    "message",
    "prompt_tokens",
    "response",
    "output",
    "summary",
    "system",
    "max_tokens",
    "metadata",
    "user_id",
    "content_block",
    "input_schema",
    "reasoning",
    "error",
]
ASK = json.dumps({"model": "m", "messages": [{"role": "user", "content": "q"}]}).encode()


def test_reading_says_what_it_could_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    good = reading.read(
        an_exchange(ASK, b'{"choices": [{"message": {"role": "assistant", "content": "a"}}]}')
    )
    assert good.reply is not None
    assert (good.path, good.reply.message, good.problems) == (
        "/v1/chat/completions",
        {"role": "assistant", "content": "a"},
        [],
    )
    assert "not understood" in reading.read(an_exchange(b"{")).problems[0]
    assert "answer not understood" in reading.read(an_exchange(ASK, b"<html>")).problems[0]
    gzip_header = [("Content-Encoding", "gzip")]
    assert "not understood" in reading.read(an_exchange(ASK, request_headers=gzip_header)).problems[0]
    assert "not recorded" in reading.read(an_exchange(ASK, request_lost=5)).problems[0]
    monkeypatch.setattr(reading, "LONGEST_BODY", 10)
    assert "not recorded" in reading.read(an_exchange(ASK)).problems[0]
    assert reading.read(an_exchange(b"", method="GET", target="/v1/models")).problems == []


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=100, deadline=None)
@given(
    path=st.sampled_from(["/v1/chat/completions", "/v1/messages", "/v1/responses"]),
    body=st.dictionaries(st.sampled_from(KEYS), JSON),
    answers=st.lists(st.dictionaries(st.sampled_from(KEYS), JSON), max_size=3),
    stream=st.booleans(),
)
def test_no_body_makes_reading_fail(path: str, body: object, answers: list[object], stream: bool) -> None:
    headers = [("Content-Type", "text/event-stream" if stream else "application/json")]
    data = b"".join(b"data: " + json.dumps(answer).encode() + b"\n\n" for answer in answers)
    if not stream:
        data = json.dumps(answers[0] if answers else None).encode()
    reading.read(
        an_exchange(
            json.dumps(body).encode(), data, target=path, response_headers=headers, marks=[(1, len(data))]
        )
    )


def test_perfect_cache_counts_whole_messages_it_saw_before() -> None:
    def entry(name: str, tokens: int) -> Entry:
        return Entry(message={}, key=name.encode(), gist=None, tokens=tokens, ids=array("I"))

    cache = PerfectCache()
    head, question, answer = entry("head", 10), entry("q", 5), entry("a", 3)
    assert cache.add([head, question], answer) == (15, 0)
    assert cache.add([head, question, answer, entry("r", 2)], None) == (20, 18)
    assert cache.add([head, entry("other", 7)], None) == (17, 10)
    assert cache.add([question, head], None) == (15, 0)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("http://h:8000/v1/", "http://h:8000"),
        ("h:8000", "http://h:8000"),
        ("https://openrouter.ai/api/v1", "https://openrouter.ai/api"),
        ("https://h", "https://h"),
    ],
)
def test_upstream_addresses(text: str, expected: str) -> None:
    assert upstream_url(text) == expected


@pytest.mark.parametrize("text", ["", "ftp://h", "http://", "http://u:p@h", "http://h?x=1", "http://h:port"])
def test_bad_upstream_addresses(text: str) -> None:
    with pytest.raises(InputError):
        upstream_url(text)


def test_a_recording_never_overwrites(tmp_path: Path) -> None:
    (tmp_path / "a.calls.jsonl").write_text("old")
    with pytest.raises(InputError, match="never overwrites"):
        Recording(Options(upstream="http://h", out=tmp_path / "a.jsonl"))
    with pytest.raises(InputError, match="no port"):
        Recording(Options(upstream="http://h", out=tmp_path / "c.jsonl", port=99999))
    with pytest.raises(InputError, match="no folder"):
        Recording(Options(upstream="http://h", out=tmp_path / "none" / "b.jsonl"))
