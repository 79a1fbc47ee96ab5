"""Filled traces have the lengths and the sharing of their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadgen.errors import InputError
from loadgen.trace.fill import Template, fill
from loadgen.trace.importing import import_trace
from loadgen.trace.prefix import PrefixIndex
from loadgen.trace.reader import TraceFile, open_trace
from loadgen.trace.reuse import reuse
from loadgen.trace.tree import PrefixTree
from tests.trace import fixtures
from tests.trace.test_curve import Spec, build

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"


def words(session: int, number: int, tokens: int) -> str:
    return " ".join([f"{session}.{number}"] * tokens)


def filled(trace: TraceFile, tmp_path: Path, template: Template | None = None) -> TraceFile:
    fill(trace, tmp_path / "filled.jsonl", words, template=template or Template(), tokenizer="words")
    return open_trace(tmp_path / "filled.jsonl")


def compare(trace: TraceFile, full: TraceFile, slack: int) -> None:
    """Every prompt as long as the source says; what it shares is at least that, and more by less than a block a turn."""
    tree = PrefixTree(trace)
    want = {
        (u.turn.session, u.turn.index): (
            u.tokens,
            tree.shared_tokens(tree.node(u.turn.session, u.turn.index)),
        )
        for u in reuse(trace)
    }
    index = PrefixIndex()
    for session in sorted(full.sessions, key=lambda session: session.start_s):
        prompt: list[dict[str, Any]] = []
        answer: list[dict[str, Any]] = []
        for turn in full.turns(session.id):
            prompt = [*prompt, *answer][: turn.keep] + (turn.append or [])
            answer = [turn.answer] if turn.answer else []
            sizes = [len(m["content"].split()) for m in prompt]
            tokens, shared = want[turn.session, turn.index]
            assert sum(sizes) == turn.content_tokens == tokens
            assert shared <= sum(sizes[: index.add(session, turn).shared]) <= shared + slack


@pytest.mark.parametrize("name", ["weka", "mooncake", "bailian", "tracelab"])
def test_lengths_and_sharing_survive(tmp_path: Path, name: str) -> None:
    with (
        open_trace(import_trace([fixtures.write(tmp_path / "in", name)], tmp_path / "t.jsonl").path) as trace,
        filled(trace, tmp_path) as full,
    ):
        compare(trace, full, slack=(trace.header.block_size or 0) - 1)
        assert full.header.fidelity == "messages"
        assert [s.parent for s in full.sessions] == [s.parent for s in trace.sessions]
        for session in trace.sessions:
            for one, other in zip(trace.turns(session.id), full.turns(session.id), strict=True):
                assert (one.gap, one.seen, one.stop, one.output_tokens) == (
                    other.gap,
                    other.seen,
                    other.stop,
                    other.output_tokens,
                )
                answer = other.answer["content"] if other.answer else ""
                assert len(answer.split()) == (one.output_tokens or 0)


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not here")
@pytest.mark.parametrize("name", ["trace_0142", "trace_0291", "trace_0576"])
def test_real_sessions(tmp_path: Path, name: str) -> None:
    with (
        open_trace(
            import_trace([SAMPLES / "kv_cache_tester" / f"{name}.json"], tmp_path / "t.jsonl").path
        ) as trace,
        filled(trace, tmp_path) as full,
    ):
        compare(trace, full, slack=63)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    spec=st.lists(
        st.tuples(st.integers(0, 2), st.integers(0, 50), st.integers(0, 100), st.integers(1, 6), st.just(0)),
        min_size=1,
        max_size=15,
    )
)
def test_any_forks(tmp_path: Path, spec: Spec) -> None:
    build(tmp_path / "t.jsonl", spec)
    with open_trace(tmp_path / "t.jsonl") as trace, filled(trace, tmp_path) as full:
        tree = PrefixTree(trace)
        whole = {
            (s.id, t.index): tree.length[tree.node(s.id, t.index)] * tree.unit
            for s in trace.sessions
            for t in trace.turns(s.id)
        }
        index = PrefixIndex()
        for session in full.sessions:
            for turn in full.turns(session.id):
                index.add(session, turn)
                assert turn.content_tokens == whole[session.id, turn.index]


def test_an_answer_is_carried_by_the_next_prompt(tmp_path: Path) -> None:
    with (
        open_trace(
            import_trace([fixtures.write(tmp_path / "in", "weka")], tmp_path / "t.jsonl").path
        ) as trace,
        filled(trace, tmp_path) as full,
    ):
        first, second, *_ = full.turns("trace_1")
        assert second.keep is None
        assert second.append is not None
        # a later prompt leaves this one after 320 tokens
        assert [(m["role"], len(m["content"].split())) for m in second.append] == [
            ("user", 50),
            ("user", 10),
        ]
        assert second.content_tokens == 330 == 200 + 70 + 50 + 10
        assert first.append is not None
        assert [m["role"] for m in first.append] == ["system", "user"]


def test_the_template_is_taken_off(tmp_path: Path) -> None:
    with (
        open_trace(
            import_trace([fixtures.write(tmp_path / "in", "weka")], tmp_path / "t.jsonl").path
        ) as trace,
        filled(trace, tmp_path, Template(per_message=3, per_prompt=10)) as full,
    ):
        messages = 0
        for turn, source in zip(full.turns("trace_1")[:2], trace.turns("trace_1"), strict=False):
            messages += len(turn.append or []) + (1 if turn.index else 0)
            assert (turn.content_tokens or 0) + 3 * messages + 10 == source.input_tokens


def test_lengths_share_nothing(tmp_path: Path) -> None:
    with (
        open_trace(
            import_trace([fixtures.write(tmp_path / "in", "azure")], tmp_path / "t.jsonl").path
        ) as trace,
        filled(trace, tmp_path) as full,
    ):
        assert [full.turns(s.id)[0].content_tokens for s in full.sessions] == [4808, 3180]


def test_text_is_not_filled_again(tmp_path: Path) -> None:
    with (
        open_trace(
            import_trace([fixtures.write(tmp_path / "in", "codex")], tmp_path / "t.jsonl").path
        ) as trace,
        pytest.raises(InputError, match="has text already"),
    ):
        fill(trace, tmp_path / "x.jsonl", words)
