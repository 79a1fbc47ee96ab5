"""`loadgen trace fit` of traces that lack something: said, and not compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from loadgen.cli import main
from loadgen.trace.features import Conversation, Step
from loadgen.trace.model import Blocks, Gap, Header, Parent, Seen, Session, Turn
from loadgen.trace.synthesis.untold import untold
from loadgen.trace.writer import TraceWriter

OUTPUTS = {"output p50", "output mean", "output p99"}
TOOL = {"tool gap p50 s", "tool gap p90 s"}
HUMAN = {"human gap p50 s", "human gap p90 s"}
TURNS = 110  # so that there is a context at turn 100


def trace(path: Path, *, outputs: bool, tool: bool, human: bool, durations: bool = True) -> Path:
    """12 sessions; every fourth step comes from a human, with a gap's length or, untold, without a gap."""
    with TraceWriter(path, Header(version=1, fidelity="blocks", block_size=64)) as writer:
        for number in range(24):
            writer.session(Session(id=f"s{number}"))
            for index in range(TURNS):
                by_human = index % 4 == 3
                gap = Gap("human" if by_human else "tool", 2.0) if (human if by_human else tool) else None
                held = 10 + 2 * index
                writer.turn(
                    Turn(
                        session=f"s{number}",
                        index=index,
                        blocks=Blocks(
                            from_=None, reuse=held if index else 0, new=2 if index else 12, tail_tokens=0
                        ),
                        gap=gap if index else None,
                        output_tokens=20 + index % 7 if outputs else None,
                        seen=Seen(e2e_s=3.0) if durations else None,
                    )
                )
            writer.end(f"s{number}")
    return path


@pytest.mark.parametrize("holdout", [False, True], ids=["whole", "holdout"])
@pytest.mark.parametrize(
    ("has", "missing", "notes"),
    [
        ({"outputs": True, "tool": True, "human": True}, set(), []),
        (
            {"outputs": False, "tool": True, "human": True},
            OUTPUTS,
            ["no output lengths: every answer of the profile has 1 token"],
        ),
        (
            {"outputs": True, "tool": False, "human": False},
            TOOL | HUMAN,
            ["no gaps after a tool: all of the profile's are 0 s"],
        ),
        (
            {"outputs": False, "tool": False, "human": False},
            OUTPUTS | TOOL | HUMAN,
            ["no output lengths", "no gaps after a tool"],
        ),
        # a trace without a human's gaps alone: its steps after humans are taken for a tool's
        ({"outputs": True, "tool": True, "human": False}, HUMAN, []),
        (
            {"outputs": True, "tool": True, "human": True, "durations": False},
            set(),
            ["no durations of calls"],
        ),
    ],
)
def test_what_the_trace_does_not_tell_is_said_and_not_compared(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    holdout: bool,
    has: dict[str, bool],
    missing: set[str],
    notes: list[str],
) -> None:
    source = trace(tmp_path / "t.jsonl", **has)
    fit = ["trace", "fit", str(source), "-o", str(tmp_path / "p.json"), "--sessions", "20"]
    fit += ["--holdout"] if holdout else []
    assert main(fit) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert printed.count("note: the trace tells no ") == len(notes)
    for note in notes:
        assert note in printed
    assert f" of {31 - len(missing)} figures outside" in printed
    assert (f"of {31 - len(missing)}, which is what a perfect model" in printed) == holdout
    assert ("left out of the comparison" in printed) == bool(missing)
    assert main([*fit, "--json"]) == 0
    told = capsys.readouterr()
    names = {row["name"] for row in json.loads(told.out)}
    assert len(names) == 31 - len(missing)
    assert not names & missing
    assert told.err.count("note: the trace tells no ") == len(notes)


def test_sub_agents_are_told_of_where_their_main_sessions_have_more() -> None:
    def session(name: str, parent: str | None, output: int | None, gap_s: float | None) -> Conversation:
        step = Step(0, "first", 64, 0, 0, 64, output, None, None, 1.0)
        later = Step(1, "extend", 128, 64, 64, 64, output, "tool", gap_s, 1.0)
        held = Session(id=name, parent=None if parent is None else Parent(session=parent, turn=0))
        return Conversation(held, [step] + [later] * 40)

    bare = session("a/b", "a", None, None)
    assert untold([session("a", None, 5, 1.0)], [bare]) == [
        "the trace tells no output lengths of sub-agents: every answer of the profile has 1 token",
        "the trace tells no gaps after a tool of sub-agents: all of the profile's are 0 s",
    ]
    assert len(untold([session("a", None, None, None)], [bare])) == 2
    assert untold([session("a", None, 5, 1.0)], [session("a/b", "a", 5, 1.0)]) == []
    assert untold([]) == [
        "the trace tells no durations of calls: the profile's `service` is loadgen's default"
    ]


def test_a_half_that_is_too_small_is_called_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source, out = trace(tmp_path / "t.jsonl", outputs=True, tool=True, human=True), tmp_path / "p.json"
    kept = [
        line
        for line in source.read_text().splitlines(keepends=True)
        if not any(f'"s{number}"' in line for number in range(19, 24))
    ]
    source.write_text("".join(kept))
    assert main(["trace", "fit", str(source), "-o", str(out), "--holdout"]) == 2
    start = "sessions from their start (first prompt below 40,000 tokens)"
    assert f"one half of t.jsonl has 9 {start} with 990 turns; a fit needs" in capsys.readouterr().err
    source.write_text("".join(line for line in kept if '"s0"' not in line))
    assert main(["trace", "fit", str(source), "-o", str(out), "--sessions", "20"]) == 0
