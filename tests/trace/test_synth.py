from __future__ import annotations

import hashlib
import json
from pathlib import Path

import pytest

from loadgen.errors import InputError
from loadgen.trace.prefix import PrefixIndex
from loadgen.trace.reader import open_trace
from loadgen.trace.summary import summarize
from loadgen.trace.synth import from_contexts


class Words:
    """A tokenizer of words."""

    name = "words"

    def count(self, text: str) -> int:
        return len(text.split())


def text(session: int, turn: int, tokens: int) -> str:
    return " ".join([f"s{session}t{turn}"] * tokens)


@pytest.fixture
def contexts(tmp_path: Path) -> Path:
    folder = tmp_path / "contexts"
    folder.mkdir()
    rows = []
    for k in range(3):
        body = " ".join(f"c{k}" for _ in range(100))
        (folder / f"context-{k:04d}.txt").write_text(body)
        rows.append(
            {
                "id": f"c{k}",
                "file": f"context-{k:04d}.txt",
                "tokens": 100,
                "sha256": hashlib.sha256(body.encode()).hexdigest(),
            }
        )
    (folder / "manifest.json").write_text(json.dumps({"tokenizer": "words", "contexts": rows}))
    return folder


def test_each_session_is_a_context_that_grows(contexts: Path) -> None:
    out = from_contexts(
        contexts,
        contexts / "t.jsonl",
        sessions=2,
        turns=3,
        new_tokens=10,
        output_tokens=5,
        new_text=text,
        tokenizer=Words(),
    )
    with open_trace(out) as trace:
        assert len(trace.sessions) == 2
        index = PrefixIndex()
        for k, session in enumerate(trace.sessions):
            turns = trace.turns(session.id)
            assert [t.content_tokens for t in turns] == [100, 115, 130]
            assert all(t.gap is None and t.input_tokens is None and t.output_tokens == 5 for t in turns)
            assert turns[0].append is not None
            assert trace.blob_path(turns[0].append[0]["content"]["blob"]).name == f"context-{k:04d}.txt"
            texts = [t.answer["content"] for t in turns if t.answer] + [
                t.append[0]["content"] for t in turns[1:] if t.append
            ]
            assert len(set(texts)) == 5
            found = [index.add(session, t) for t in turns]
            assert [(p.messages, p.shared, p.answer_shared) for p in found] == [
                (1, 0, False),
                (3, 1, True),
                (5, 3, True),
            ]
        # second turns find 100 of 115 tokens, third ones 115 of 130
        assert summarize(trace)["ideal_hit_share"] == pytest.approx(2 * 215 / (2 * 345))


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"sessions": 4}, "holds 3 contexts; 4 sessions"),
        ({"sessions": 0}, "0 sessions"),
        ({"turns": 0}, "turns must be at least 1"),
        ({"new_tokens": 0}, "new tokens must be at least 1"),
        ({"new_text": lambda s, t, n: "x"}, "a text of 5 tokens was asked for and has 1"),
    ],
)
def test_bad_numbers(contexts: Path, change: dict[str, object], sentence: str) -> None:
    arguments: dict[str, object] = {
        "sessions": 1,
        "turns": 2,
        "new_tokens": 10,
        "output_tokens": 5,
        "new_text": text,
        "tokenizer": Words(),
    }
    with pytest.raises(InputError, match=sentence):
        from_contexts(contexts, contexts / "t.jsonl", **{**arguments, **change})  # type: ignore[arg-type]
    assert not list(contexts.glob("*t.jsonl*"))


def test_a_trace_outside_of_its_texts_is_refused(contexts: Path, tmp_path: Path) -> None:
    (tmp_path / "else").mkdir()
    with pytest.raises(InputError, match="write the trace into the folder of its texts or above it"):
        from_contexts(
            contexts,
            tmp_path / "else" / "t.jsonl",
            sessions=1,
            turns=1,
            new_tokens=1,
            output_tokens=1,
            new_text=text,
        )


def test_a_folder_without_contexts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds no manifest\.json"):
        from_contexts(
            tmp_path, tmp_path / "t.jsonl", sessions=1, turns=1, new_tokens=1, output_tokens=1, new_text=text
        )
