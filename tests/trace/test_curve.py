"""The run-wise stack algorithm against a plain LRU of single blocks."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadgen.errors import InputError
from loadgen.trace.curve import curve
from loadgen.trace.model import Blocks, Gap, Header, Parent, Seen, Session, Turn
from loadgen.trace.reader import TraceFile, open_trace
from loadgen.trace.timeline import Caps, Timeline
from loadgen.trace.tree import PrefixTree
from loadgen.trace.writer import TraceWriter

SIZE = 4
Spec = list[
    tuple[int, int, int, int, int]
]  # per turn: session, pick of a source, share of its blocks in %, new, output


def build(path: Path, spec: Spec) -> list[tuple[list[tuple[int, int]], int]]:
    """Write the trace; per turn in time order, the ids of its prompt's blocks and how many blocks its answer takes."""
    prompts: dict[tuple[str, int], list[tuple[int, int]]] = {}
    wholes: dict[tuple[str, int], list[tuple[int, int]]] = {}
    found = []
    sessions = sorted({row[0] for row in spec})
    turns: dict[str, list[Turn]] = {f"s{n}": [] for n in sessions}
    starts: dict[str, float] = {}
    for at, (number, pick, percent, new, output) in enumerate(spec):
        name = f"s{number}"
        index = len(turns[name])
        keys = list(wholes)
        source = keys[pick % len(keys)] if keys else None
        reuse = len(wholes[source]) * percent // 100 if source else 0
        prompt = (wholes[source][:reuse] if source else []) + [(at, i) for i in range(new)]
        whole = prompt + [(at, i + new) for i in range(output // SIZE)]
        prompts[name, index], wholes[name, index] = prompt, whole
        starts.setdefault(name, float(at))
        gap = Gap("tool", at - starts[name] - sum(t.gap.s for t in turns[name] if t.gap)) if index else None
        blocks = Blocks(from_=source, reuse=reuse, new=new)
        turns[name].append(
            Turn(
                session=name, index=index, blocks=blocks, output_tokens=output, gap=gap, seen=Seen(e2e_s=0.0)
            )
        )
        found.append((prompt, len(whole) - len(prompt)))
    with TraceWriter(path, Header(version=1, fidelity="blocks", block_size=SIZE)) as writer:
        for name, rows in turns.items():
            writer.session(Session(id=name, start_s=starts[name]))
            for row in rows:
                writer.turn(row)
            writer.end(name)
    return found


def plain(requests: list[tuple[list[tuple[int, int]], int]], capacity: int) -> int:
    """Blocks that a plain LRU holds when they are asked for; of one request, the head is the newest."""
    stack: list[tuple[int, int]] = []  # newest last
    hits = 0
    for at, (prompt, answer) in enumerate(requests):
        held = set(stack[-capacity:]) if capacity else set()
        hits += sum(block in held for block in prompt)
        used = prompt + [(at, len([b for b in prompt if b[0] == at]) + i) for i in range(answer)]
        stack = [block for block in stack if block not in set(used)] + used[::-1]
    return hits


@settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    spec=st.lists(
        st.tuples(
            st.integers(0, 3), st.integers(0, 50), st.integers(0, 100), st.integers(1, 6), st.integers(0, 20)
        ),
        min_size=1,
        max_size=25,
    )
)
def test_equals_a_plain_lru_at_every_size(tmp_path: Path, spec: Spec) -> None:
    requests = build(tmp_path / "t.jsonl", spec)
    with open_trace(tmp_path / "t.jsonl") as trace:
        tree = PrefixTree(trace)
        found = curve(tree, Timeline(trace))
        total = sum(len(prompt) for prompt, _ in requests)
        biggest = sum(len(prompt) + answer for prompt, answer in requests)
        sizes = sorted({0, 1, 2, 3, 5, 8, 13, 21, biggest})
        shares = found.hit_share([size * SIZE for size in sizes])
        assert list(shares * total) == pytest.approx([plain(requests, size) for size in sizes])
        assert found.prompt_tokens == total * SIZE
        assert found.footprint <= biggest * SIZE


def load(path: Path) -> TraceFile:
    with TraceWriter(path, Header(version=1, fidelity="blocks", block_size=SIZE)) as writer:
        for name in ("a", "b"):
            writer.session(Session(id=name))
            for index in range(3):
                gap = Gap("human", 100.0) if index else None
                blocks = Blocks(reuse=10 * index, new=10)
                writer.turn(Turn(session=name, index=index, blocks=blocks, gap=gap, seen=Seen(e2e_s=5.0)))
        writer.session(Session(id="a/c", parent=Parent(session="a", turn=0)))
        writer.turn(
            Turn(
                session="a/c",
                index=0,
                blocks=Blocks(reuse=0, new=1),
                gap=Gap("tool", 1.0),
                seen=Seen(e2e_s=7.0),
            )
        )
    return open_trace(path)


def test_reuse_waits_from_the_end_of_the_last_use(tmp_path: Path) -> None:
    with load(tmp_path / "t.jsonl") as trace:
        found = curve(PrefixTree(trace), Timeline(trace))
        assert sorted(set(found.wait_s)) == pytest.approx(
            [100.0, 108.0]
        )  # a's second turn waits for its child
        assert list(found.within([99, 107, 200])) == pytest.approx([0, 5 / 6, 1])
        assert found.size_for(1.0) == pytest.approx((20 + 20 + 1) * SIZE, rel=0.6)


def test_lanes_and_caps_decide_when_turns_run(tmp_path: Path) -> None:
    with load(tmp_path / "t.jsonl") as trace:
        alone = Timeline(trace, lanes=1, caps=Caps(human_s=10.0))
        order = [(trace.sessions[s].id, start) for start, _, s, _ in alone.in_order()]
        assert order == [
            ("a", 0.0),
            ("a/c", 6.0),
            ("a", 23.0),
            ("a", 38.0),
            ("b", 43.0),
            ("b", 58.0),
            ("b", 73.0),
        ]
        with pytest.raises(InputError, match="at least 1"):
            Timeline(trace, lanes=0)


def test_a_trace_of_lengths_has_no_curve(tmp_path: Path) -> None:
    with TraceWriter(tmp_path / "t.jsonl", Header(version=1, fidelity="lengths")) as writer:
        writer.session(Session(id="a"))
        writer.turn(Turn(session="a", index=0, input_tokens=5))
    with open_trace(tmp_path / "t.jsonl") as trace, pytest.raises(InputError, match="knows no prefixes"):
        PrefixTree(trace)
