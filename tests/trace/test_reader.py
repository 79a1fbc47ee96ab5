from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import zstandard

from loadgen.errors import InputError
from loadgen.trace import lines as line_module
from loadgen.trace.reader import open_trace
from tests.trace.conftest import HEADER, answer, user

Lines = Callable[..., Path]

SESSION = {"type": "session", "id": "a"}
TURN = {"type": "turn", "session": "a", "index": 0, "append": [user("hi")], "answer": answer("yes")}
END = {"type": "end", "session": "a"}
BLOCKS = {**HEADER, "fidelity": "blocks", "block_size": 64}


def turn(index: int, **more: Any) -> dict[str, Any]:
    return {"type": "turn", "session": "a", "index": index, "append": [user(f"m{index}")], **more}


def block_turn(
    session: str, index: int, source: list[Any] | None, reuse: int, new: int, **more: Any
) -> dict[str, Any]:
    return {
        "type": "turn",
        "session": session,
        "index": index,
        "blocks": {"from": source, "reuse": reuse, "new": new},
        **more,
    }


def test_reads_sessions_in_file_order_and_turns_on_demand(lines: Lines) -> None:
    path = lines(
        HEADER,
        {"type": "session", "id": "b"},
        SESSION,
        TURN,
        {"type": "turn", "session": "b", "index": 0, "append": [user("x")]},
        turn(1, gap={"kind": "tool", "s": 1.5}),
        END,
        {"type": "end", "session": "b"},
    )
    with open_trace(path) as trace:
        assert [s.id for s in trace.sessions] == ["b", "a"]
        assert [t.index for t in trace.turns("a")] == [0, 1]
        assert trace.turns("a")[1].gap is not None
        assert trace.turn_count("a") == 2
        assert trace.open_sessions() == []
        assert trace.sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_attempts_are_sorted_and_a_retry_needs_no_append(lines: Lines) -> None:
    retry = {"type": "turn", "session": "a", "index": 0, "attempt": 2}
    with open_trace(lines(HEADER, SESSION, {**TURN, "attempt": 3}, retry, TURN)) as trace:
        assert [t.attempt for t in trace.turns("a")] == [1, 2, 3]
        assert trace.turn_count("a") == 1


@pytest.mark.parametrize("suffix", [".gz", ".zst"])
def test_compressed_files_read_the_same(lines: Lines, tmp_path: Path, suffix: str) -> None:
    plain = lines(HEADER, SESSION, TURN, END)
    packed = tmp_path / f"t.jsonl{suffix}"
    data = plain.read_bytes()
    packed.write_bytes(gzip.compress(data) if suffix == ".gz" else zstandard.compress(data))
    with open_trace(packed) as trace, open_trace(plain) as other:
        assert trace.turns("a") == other.turns("a")
        assert trace.sha256 == hashlib.sha256(packed.read_bytes()).hexdigest()


def test_a_cut_compressed_file_is_one_sentence(lines: Lines, tmp_path: Path) -> None:
    data = gzip.compress(lines(HEADER, SESSION, TURN).read_bytes())
    packed = tmp_path / "t.jsonl.gz"
    packed.write_bytes(data[:-12])
    with pytest.raises(InputError, match=r"t\.jsonl\.gz is damaged or cut off"):
        open_trace(packed)


def test_a_zip_bomb_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(line_module, "BOMB_FLOOR", 1 << 20)
    packed = tmp_path / "bomb.jsonl.zst"
    packed.write_bytes(zstandard.compress(bytes(64 << 20)))
    with pytest.raises(InputError, match="unpacks to more than 500 times its size"):
        open_trace(packed)


def test_a_blob_is_found_by_its_digest(lines: Lines) -> None:
    digest = hashlib.sha256(b'"be brief"').hexdigest()
    ref = f"sha256:{digest}"
    blob = {"type": "blob", "sha256": digest, "json": "be brief"}
    with open_trace(lines(HEADER, blob, {**SESSION, "system": ref}, TURN)) as trace:
        assert trace.blob(ref).json == "be brief"
    with pytest.raises(InputError, match=r":2: the blob's `json` has the digest"):
        open_trace(lines(HEADER, {**blob, "json": "be long"}))


def test_a_blob_file_stays_in_the_folder_and_keeps_its_digest(lines: Lines, tmp_path: Path) -> None:
    text = tmp_path / "c.txt"
    text.write_text("code")
    digest = hashlib.sha256(b"code").hexdigest()
    blob = {"type": "blob", "sha256": digest, "file": "c.txt"}
    path = lines(
        HEADER, blob, SESSION, {**TURN, "append": [{"role": "user", "content": {"blob": f"sha256:{digest}"}}]}
    )
    with open_trace(path) as trace:
        assert trace.blob_path(f"sha256:{digest}").read_text() == "code"
    text.write_text("edoc")
    with open_trace(path) as trace, pytest.raises(InputError, match=r"c\.txt is not the text"):
        trace.blob_path(f"sha256:{digest}")
    for name in ("../c.txt", "/etc/passwd"):
        with pytest.raises(InputError, match=r":2: the blob's file .* lies outside"):
            open_trace(lines(HEADER, {**blob, "file": name}))
    (tmp_path / "link.txt").symlink_to("/etc/hostname")
    with pytest.raises(InputError, match="lies outside"):
        open_trace(lines(HEADER, {**blob, "file": "link.txt"}))


BAD: list[tuple[list[Any], str]] = [
    ([], r": the file is empty"),
    ([SESSION], r":1: the first record must be the header"),
    ([TURN], r":1: the first record must be the header"),
    ([{**HEADER, "version": 2}], r":1: the trace has version 2"),
    ([HEADER, HEADER], r":2: there is a second header"),
    ([HEADER, {"type": "note"}], r":2: .*'note'"),
    ([HEADER, b"[1]"], r":2: expected `object`"),
    ([HEADER, b'{"type":"end"}'], r":2: object missing required field `session`"),
    ([HEADER, b""], r":2: the line is empty"),
    ([HEADER, b"a: b"], r":2: this is not a JSON object"),
    ([HEADER, b"\x00\x00\x00"], r":2: the line holds NUL bytes"),
    ([HEADER, b'{"type":"session","id":"\xff"}'], r":2: "),
    ([HEADER, b"[" * 100_000], r":2: "),
    ([HEADER, SESSION, SESSION], r":3: session 'a' is declared twice"),
    ([HEADER, TURN], r":2: there is no session record 'a'"),
    ([HEADER, SESSION, END, TURN], r":4: session 'a' has ended"),
    ([HEADER, SESSION, turn(1)], r":3: turn 1 of session 'a': expected index 0 here"),
    ([HEADER, SESSION, TURN, TURN], r":4: .*attempt 1 is there twice"),
    ([HEADER, SESSION, turn(-1)], r":3: field `index`: expected `int` >= 0"),
    ([HEADER, SESSION, turn(0, gap={"kind": "tool", "s": 1})], r":3: .*has no `gap`"),
    (
        [HEADER, SESSION, TURN, turn(1, gap={"kind": "tool", "s": -1})],
        r":4: field `gap.s`: expected `float` >= 0",
    ),
    ([HEADER, SESSION, TURN, turn(1, gap={"kind": "nap", "s": 1})], r":4: field `gap.kind`"),
    (
        [HEADER, SESSION, turn(0, input_tokens=1, cached_tokens=2)],
        r":3: .*cached_tokens 2 exceeds input_tokens 1",
    ),
    ([HEADER, SESSION, turn(0, output_tokens=1, reasoning_tokens=2)], r":3: .*reasoning_tokens 2 exceeds"),
    ([HEADER, SESSION, TURN, turn(1, keep=3)], r":4: .*keep 3 exceeds the 2 messages"),
    ([HEADER, SESSION, turn(0, append=[])], r":3: .*has no message"),
    ([HEADER, SESSION, turn(0, append=[{"role": "robot"}])], r":3: .*role 'robot'"),
    ([HEADER, SESSION, turn(0, append=[{"role": "user", "content": 1}])], r":3: .*`content` must be"),
    (
        [HEADER, SESSION, turn(0, append=[{"role": "user", "content": {"blob": "sha256:00"}}])],
        r":3: .*is called sha256:00",
    ),
    ([HEADER, SESSION, turn(0, answer=user("x"))], r":3: .*expected 'assistant'"),
    ([HEADER, {**SESSION, "system": "sha256:" + "0" * 64}], r":2: .*the digest of its `system`"),
    ([HEADER, {**SESSION, "start_s": -0.5}], r":2: field `start_s`"),
    (
        [HEADER, {**SESSION, "parent": {"session": "a", "turn": 0}}, TURN],
        r": sessions are each other's parents: a -> a",
    ),
    (
        [HEADER, {**SESSION, "parent": {"session": "z", "turn": 0}}, TURN],
        r": session 'a' has the parent 'z', which is not",
    ),
    (
        [HEADER, SESSION, TURN, {"type": "session", "id": "b", "parent": {"session": "a", "turn": 1}}],
        r": session 'b' starts at turn 1 of 'a'",
    ),
    ([{**BLOCKS, "block_size": None}], r":1: .*needs `block_size`"),
    ([BLOCKS, SESSION, turn(0)], r":3: .*`append` has no place"),
    ([BLOCKS, SESSION, {"type": "turn", "session": "a", "index": 0}], r":3: .*`blocks` is missing"),
    ([BLOCKS, SESSION, block_turn("a", 0, None, 1, 1)], r":3: .*reuses 1 blocks where the source has 0"),
    (
        [BLOCKS, SESSION, block_turn("a", 0, None, 0, 1, input_tokens=65)],
        r":3: .*is not what its blocks hold, 64",
    ),
    ([BLOCKS, SESSION, block_turn("a", 0, ["a", 0], 0, 1)], r":3: .*not an earlier one"),
    (
        [BLOCKS, SESSION, block_turn("a", 0, ["b", 0], 0, 1)],
        r": turn 0 of session 'a': its blocks come from turn 0 of 'b'",
    ),
    ([{**HEADER, "fidelity": "lengths"}, SESSION, turn(0)], r":3: .*`append` has no place"),
]


@pytest.mark.parametrize(("records", "sentence"), BAD)
def test_every_broken_rule_is_a_sentence_with_its_line(
    lines: Lines, records: list[Any], sentence: str
) -> None:
    path = lines(*records, end=b"\n" if records else b"")
    with pytest.raises(InputError, match=rf"^{path}{sentence}") as caught:
        open_trace(path)
    assert "\n" not in str(caught.value)


def test_block_sources_that_wait_for_each_other_are_a_cycle(lines: Lines) -> None:
    two = {"type": "session", "id": "b"}
    good = [
        block_turn("a", 0, None, 0, 4),
        block_turn("a", 1, ["b", 0], 4, 1),
        block_turn("b", 0, ["a", 0], 4, 1),
        block_turn("b", 1, ["a", 1], 5, 0),
    ]
    open_trace(lines(BLOCKS, SESSION, *good[:2], two, *good[2:])).close()
    bad = [block_turn("a", 0, ["b", 0], 0, 4), block_turn("b", 0, ["a", 0], 0, 4)]
    with pytest.raises(InputError, match="cycle among sessions 'a', 'b'"):
        open_trace(lines(BLOCKS, SESSION, bad[0], two, bad[1]))


@pytest.mark.parametrize("cut", range(1, 30))
def test_a_truncated_last_line_is_named(lines: Lines, cut: int) -> None:
    path = lines(HEADER, SESSION, TURN)
    path.write_bytes(path.read_bytes()[: -1 - cut])
    with pytest.raises(InputError, match=r"trace\.jsonl:3: the last line is cut off"):
        open_trace(path)


def test_a_last_line_without_line_end_is_whole(lines: Lines) -> None:
    with open_trace(lines(HEADER, SESSION, TURN, end=b"")) as trace:
        assert trace.turn_count("a") == 1


def test_a_line_beyond_the_limit_is_refused(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    path = lines(HEADER, b" " * (3 << 20))
    monkeypatch.setattr(line_module.read_lines, "__defaults__", (1 << 20,))
    with pytest.raises(InputError, match=r":2: the line is longer than 1 MiB"):
        open_trace(path)


def test_missing_file_and_folder(tmp_path: Path) -> None:
    for path in (tmp_path / "none.jsonl", tmp_path):
        with pytest.raises(InputError, match="cannot be read"):
            open_trace(path)


def test_unknown_fields_are_ignored(lines: Lines) -> None:
    with open_trace(
        lines({**HEADER, "later": 1}, {**SESSION, "mood": "good"}, {**TURN, "x": json.loads("[1]")})
    ) as trace:
        assert trace.turn_count("a") == 1
