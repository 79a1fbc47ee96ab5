from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadgen.trace.anonymize import anonymize
from loadgen.trace.formats import registry
from loadgen.trace.importing import import_trace
from loadgen.trace.reader import TraceFile, open_trace
from loadgen.trace.tree import PrefixTree
from tests.trace import fixtures
from tests.trace.test_exports import structure, timing

WITH_PREFIXES = [f.name for f in registry.FORMATS if f.fidelity != "lengths"]
SAMPLES = Path(__file__).parents[3] / "shared" / "samples"


def strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)


def content(trace: TraceFile) -> Iterator[str]:
    """All text that the trace holds, and its names."""
    yield from (session.id for session in trace.sessions)
    yield trace.header.name
    for ref in trace.blob_refs():
        yield from strings(trace.blob(ref).json)
    for session in trace.sessions:
        for turn in trace.turns(session.id):
            yield from strings(turn.append)
            yield from strings(turn.answer)


def leaks(trace: TraceFile, out: Path, length: int) -> list[str]:
    written = out.read_text()
    return [
        text[i : i + length]
        for text in content(trace)
        for i in range(len(text) - length + 1)
        if text[i : i + length] in written
    ]


@pytest.mark.parametrize("name", WITH_PREFIXES)
def test_structure_and_timing_stay_and_content_goes(tmp_path: Path, name: str) -> None:
    with open_trace(
        import_trace([fixtures.write(tmp_path / "in", name)], tmp_path / "t.jsonl").path
    ) as trace:
        out = anonymize(trace, tmp_path / "anonymous.jsonl")
        with open_trace(out) as again:
            assert again.header.fidelity == "blocks"
            one, other = PrefixTree(trace), PrefixTree(again)
            assert [other.shared_tokens(n) for n in range(len(other.depth))] == [
                one.shared_tokens(n) for n in range(len(one.depth))
            ]
            known = [[row[0][0], row[0][1], *row[1:]] for row in structure(trace)]
            assert [[row[0][0], row[0][1], *row[1:]] for row in structure(again)] == known
            assert timing(again) == timing(trace)
        assert leaks(trace, out, 20) == []


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not here")
@pytest.mark.parametrize("name", ["claude_code_viewer", "openhands_v0", "tracelab/codex", "cline_sdk"])
def test_no_20_characters_of_real_logs_survive(tmp_path: Path, name: str) -> None:
    with open_trace(import_trace([SAMPLES / name], tmp_path / "t.jsonl").path) as trace:
        out = anonymize(trace, tmp_path / "anonymous.jsonl")
        written = out.read_text()
        pieces = {written[i : i + 20] for i in range(len(written) - 19)}
        assert not [
            text[i : i + 20]
            for text in content(trace)
            for i in range(len(text) - 19)
            if text[i : i + 20] in pieces
        ]
        with open_trace(out) as again:
            assert [s.id for s in again.sessions] != [s.id for s in trace.sessions]


def test_two_exports_have_nothing_in_common_but_numbers(tmp_path: Path) -> None:
    with open_trace(
        import_trace([fixtures.write(tmp_path / "in", "claude-code")], tmp_path / "t.jsonl").path
    ) as trace:
        first, second = (open_trace(anonymize(trace, tmp_path / name)) for name in ("a.jsonl", "b.jsonl"))
        assert not {s.id for s in first.sessions} & {s.id for s in second.sessions}
        assert {s.agent for s in first.sessions} == {"main", "sub"}
        same = open_trace(anonymize(trace, tmp_path / "c.jsonl", key=b"k"))
        assert [s.id for s in same.sessions] == [
            s.id for s in open_trace(anonymize(trace, tmp_path / "d.jsonl", key=b"k")).sessions
        ]


def test_larger_blocks_round_sharing_down(tmp_path: Path) -> None:
    with (
        open_trace(
            import_trace([fixtures.write(tmp_path / "in", "codex")], tmp_path / "t.jsonl").path
        ) as trace,
        open_trace(anonymize(trace, tmp_path / "b.jsonl", block_size=16)) as again,
    ):
        blocks = [turn.blocks for turn in again.turns(again.sessions[0].id)]
    assert [(b.reuse, b.new, b.tail_tokens) for b in blocks[:2] if b] == [(0, 6, 4), (6, 2, 2)]


def test_lengths_stay_lengths(tmp_path: Path) -> None:
    with (
        open_trace(
            import_trace([fixtures.write(tmp_path / "in", "azure")], tmp_path / "t.jsonl").path
        ) as trace,
        open_trace(anonymize(trace, tmp_path / "b.jsonl")) as again,
    ):
        assert [again.turns(s.id)[0].input_tokens for s in again.sessions] == [4808, 3180]
