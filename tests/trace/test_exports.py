"""Round trips: what an export writes, the importer of the same format reads as the same trace."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.errors import InputError
from loadgen.trace.exporting import EXPORTS, export_trace
from loadgen.trace.importing import import_trace
from loadgen.trace.prefix import PrefixIndex
from loadgen.trace.reader import TraceFile, open_trace
from loadgen.trace.tree import PrefixTree
from tests.trace import fixtures, fixtures_agents

SAMPLES = Path(__file__).parents[3] / "shared" / "samples"


def load(tmp_path: Path, name: str) -> TraceFile:
    return open_trace(import_trace([fixtures.write(tmp_path / "in", name)], tmp_path / "t.jsonl").path)


def round_trip(trace: TraceFile, to: str, tmp_path: Path) -> TraceFile:
    out = tmp_path / f"exported.{'json' if to in ('vllm', 'otel') else 'jsonl'}"
    export_trace(trace, to, out)
    return open_trace(import_trace([out], tmp_path / f"again-{to}.jsonl", format_name=to).path)


def structure(trace: TraceFile) -> list[list[tuple[Any, ...]]]:
    """Every prompt as (length, tokens shared with each earlier prompt), in order of time: equality up to renaming."""
    tree = PrefixTree(trace)
    nodes = [(tree.node(s.id, place), t) for s in trace.sessions for place, t in enumerate(trace.turns(s.id))]
    paths = [{(o, p) for o, b, e in tree.segments(n) for p in range(b, e)} for n, _ in nodes]
    found = []
    for i, (node, turn) in enumerate(nodes):
        shared = [len(paths[i] & other) for other in paths[:i]]
        found.append(
            [(tree.length[node], tree.tail[node], tree.same_tail[node], turn.output_tokens), *shared]
        )
    return found  # type: ignore[return-value]


def timing(trace: TraceFile) -> list[Any]:
    rows = []
    for session in trace.sessions:
        parent = session.parent and (session.parent.turn, session.parent.wait)
        for turn in trace.turns(session.id):
            gap = turn.gap and (turn.gap.kind, round(turn.gap.s, 4))
            seen = turn.seen and (turn.seen.ttft_s, turn.seen.e2e_s)
            rows.append((round(session.start_s, 4), parent, turn.stop, gap, seen))
    return rows


def test_weka(tmp_path: Path) -> None:
    with load(tmp_path, "weka") as trace, round_trip(trace, "weka", tmp_path) as again:
        assert structure(again) == structure(trace)
        assert timing(again) == timing(trace)
        assert [s.agent for s in again.sessions] == [s.agent for s in trace.sessions]


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="the samples are not here")
@pytest.mark.parametrize("name", ["trace_0142", "trace_0576"])
def test_weka_samples_come_back_with_their_hash_ids_renamed(tmp_path: Path, name: str) -> None:
    source = SAMPLES / "kv_cache_tester" / f"{name}.json"
    trace = open_trace(import_trace([source], tmp_path / "t.jsonl").path)
    export_trace(trace, "weka", tmp_path / "w.jsonl")
    before, after = json.loads(source.read_bytes()), json.loads((tmp_path / "w.jsonl").read_bytes())
    names: dict[int, int] = {}
    for one, other in zip(before["requests"], after["requests"], strict=True):
        assert (one["in"], one["out"], one.get("stop"), one.get("api_time")) == (
            other["in"],
            other["out"],
            other["stop"],
            other.get("api_time"),
        )
        assert len(one["hash_ids"]) == len(other["hash_ids"])
        for a, b in zip(one["hash_ids"], other["hash_ids"], strict=True):
            assert names.setdefault(a, b) == b
    assert len(set(names.values())) == len(names)


def test_mooncake(tmp_path: Path) -> None:
    with load(tmp_path, "mooncake") as trace, round_trip(trace, "mooncake", tmp_path) as again:
        assert structure(again) == structure(trace)
        rows = [json.loads(line) for line in (tmp_path / "exported.jsonl").read_text().splitlines()]
        assert [row["hash_ids"] for row in rows] == [[1, 2, 3], [1, 2, 3], [1, 2, 4, 5, 6]]
        assert [row["timestamp"] for row in rows] == [0, 0, 3000]


def test_small_blocks_are_put_together_for_mooncake(tmp_path: Path) -> None:
    requests = [
        {
            "t": float(i),
            "type": "n",
            "model": "m",
            "in": 64 * n,
            "out": 1,
            "hash_ids": list(range(1, n + 1)),
            "stop": "",
        }
        for i, n in enumerate((7, 8, 17, 20))
    ]
    (tmp_path / "w.json").write_bytes(fixtures_agents.doc({**fixtures.WEKA, "requests": requests}))
    with open_trace(import_trace([tmp_path / "w.json"], tmp_path / "t.jsonl").path) as trace:
        export_trace(trace, "mooncake", tmp_path / "m.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "m.jsonl").read_text().splitlines()]
    assert [(row["input_length"], len(row["hash_ids"])) for row in rows] == [
        (448, 1),
        (512, 1),
        (1088, 3),
        (1280, 3),
    ]
    assert rows[0]["hash_ids"][0] != rows[1]["hash_ids"][0] == rows[2]["hash_ids"][0]
    assert rows[2]["hash_ids"][1] == rows[3]["hash_ids"][1]
    assert rows[2]["hash_ids"][2] != rows[3]["hash_ids"][2]


def test_blocks_that_do_not_divide_are_refused(tmp_path: Path) -> None:
    with load(tmp_path, "mooncake") as trace, pytest.raises(InputError, match="do not divide blocks of 64"):
        export_trace(trace, "weka", tmp_path / "w.jsonl")
    assert not (tmp_path / "w.jsonl").exists()


def test_messages_have_blocks_too(tmp_path: Path) -> None:
    with load(tmp_path, "codex") as trace, round_trip(trace, "weka", tmp_path) as again:
        assert [t.input_tokens for t in again.turns(again.sessions[0].id)][:2] == [100, 130]
        second = again.turns(again.sessions[0].id)[1].blocks
        assert second is not None
        assert (second.reuse, second.new) == (1, 1)  # 100 shared tokens are one whole block of 64


def shared_messages(trace: TraceFile) -> list[int]:
    index = PrefixIndex()
    return [index.add(session, turn).shared for session in trace.sessions for turn in trace.turns(session.id)]


def test_vllm(tmp_path: Path) -> None:
    with load(tmp_path, "sharegpt") as trace, round_trip(trace, "vllm", tmp_path) as again:
        assert [t.append for t in again.turns("g")] == [t.append for t in trace.turns("g")]
        assert [t.answer for t in again.turns("g")] == [t.answer for t in trace.turns("g")]


def test_lmcache_keeps_prefix_sharing(tmp_path: Path) -> None:
    with load(tmp_path, "cline") as trace, round_trip(trace, "lmcache", tmp_path) as again:
        turns = again.turns(again.sessions[0].id)
        assert len(turns) == 2
        assert turns[0].append is not None
        assert turns[0].append[0]["content"] == "system: You are Cline\nuser: hi"
        assert shared_messages(again) == [0, 1]


@pytest.mark.parametrize("name", ["cline", "openhands-completions", "otel", "mini-swe-agent"])
def test_otel(tmp_path: Path, name: str) -> None:
    with load(tmp_path, name) as trace, round_trip(trace, "otel", tmp_path) as again:
        assert len(again.sessions) == len(trace.sessions)
        for one, other in zip(trace.sessions, again.sessions, strict=True):
            for before, after in zip(trace.turns(one.id), again.turns(other.id), strict=True):
                for field in (
                    "append",
                    "answer",
                    "keep",
                    "input_tokens",
                    "output_tokens",
                    "cached_tokens",
                    "stop",
                ):
                    assert getattr(after, field) == getattr(before, field), field
                assert (after.gap and round(after.gap.s, 3)) == (before.gap and round(before.gap.s, 3))
            assert (one.system and trace.blob(one.system).json) == (
                other.system and again.blob(other.system).json
            )
            assert (one.tools and trace.blob(one.tools).json) == (
                other.tools and again.blob(other.tools).json
            )


def test_aiperf_rows_are_deltas(tmp_path: Path) -> None:
    with load(tmp_path, "cline") as trace:
        export_trace(trace, "aiperf", tmp_path / "a.jsonl")
    rows = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert [[m["role"] for m in row["messages"]] for row in rows] == [["system", "user"], ["tool"]]
    assert (rows[0]["timestamp"], rows[1]["delay"], rows[1]["output_length"]) == (0, 1000, 3)
    with load(tmp_path / "m", "mooncake") as trace:
        export_trace(trace, "aiperf", tmp_path / "b.jsonl")
    assert "hash_ids" in json.loads((tmp_path / "b.jsonl").read_text().splitlines()[0])


@pytest.mark.parametrize("to", ["vllm", "lmcache", "otel"])
def test_text_formats_refuse_traces_without_text(tmp_path: Path, to: str) -> None:
    with load(tmp_path, "weka") as trace, pytest.raises(InputError, match="holds no text"):
        export_trace(trace, to, tmp_path / "x")


def test_bad_targets(tmp_path: Path) -> None:
    with load(tmp_path, "weka") as trace:
        with pytest.raises(InputError, match="there are: mooncake, weka"):
            export_trace(trace, "x", tmp_path / "x")
        with pytest.raises(InputError, match="both read and written"):
            export_trace(trace, "weka", trace.path)
        (tmp_path / "file").write_text("")
        for to in EXPORTS:
            with pytest.raises(InputError):
                export_trace(trace, to, tmp_path / "file" / "x")
