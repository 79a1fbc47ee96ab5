from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from loadgen import cli
from loadgen.errors import InputError
from loadgen.sim import grid as grids
from loadgen.sim import page
from loadgen.sim import profile as profiles
from loadgen.sim.whatif import Outcome, WhatIf
from loadgen.sim.workload import Workload
from loadgen.trace.model import Blocks, Gap, Header, Parent, Session, Turn
from loadgen.trace.reader import open_trace
from loadgen.trace.writer import TraceWriter

BLOCK = 64
Maker = Callable[..., Workload]


def write(
    path: Path,
    sessions: int,
    turns: int,
    *,
    first: int = 140_032,
    new: int = 512,
    output: int = 128,
    gap: float = 0.0,
) -> Path:
    """A trace in which every turn appends to the one before it, answers included."""
    with TraceWriter(path, Header(version=1, name="agents", fidelity="blocks", block_size=BLOCK)) as writer:
        for number in range(sessions):
            name = f"s{number}"
            writer.session(Session(id=name))
            whole = 0
            for index in range(turns):
                total = whole + (new if index else first)
                reuse = whole // BLOCK
                writer.turn(
                    Turn(
                        session=name, index=index, output_tokens=output, gap=Gap("tool", gap) if index else None,
                        blocks=Blocks(reuse=reuse, new=total // BLOCK - reuse, tail_tokens=total % BLOCK),
                    )
                )  # fmt: skip
                whole = total + output
            writer.end(name)
    return path


@pytest.fixture
def make(tmp_path: Path) -> Maker:
    def made(*arguments: int, **more: Any) -> Workload:
        with open_trace(write(tmp_path / "trace.jsonl", *arguments, **more)) as trace:
            return Workload(trace)

    return made


def play(workload: Workload, arm: str, **more: Any) -> Outcome:
    return WhatIf(profiles.load("blog"), arm, workload, **more).run()


def test_the_blogs_experiment(make: Maker) -> None:
    """10 contexts, 5 turns, 128 tokens out: derived totals 1,193 and 617 s with equal prompts; here turns grow by 640."""
    workload = make(10, 5, new=128, first=140_032)
    off = play(workload, "off", sessions=10, schedule="sweep", answers="recorded")
    offload = play(workload, "offload", sessions=10, schedule="sweep", answers="recorded")
    assert off.total_s == pytest.approx(1_193, rel=0.02)
    assert offload.total_s == pytest.approx(617, rel=0.03)
    assert off.percentile(0.5, 1) == pytest.approx(22.2, rel=0.02)
    assert offload.percentile(0.5, 1) == pytest.approx(6.7, rel=0.02)
    assert offload.percentile(0.5, 0) == pytest.approx(26.0, rel=0.005)
    assert off.hbm.sum() == 0
    assert offload.external[offload.klass == 1].min() >= 139_776


def test_a_sweep_sends_all_first_turns_first(make: Maker) -> None:
    outcome = play(make(4, 3), "offload", sessions=4, schedule="sweep")
    assert outcome.klass.tolist() == [0] * 4 + [1] * 8
    assert outcome.session.tolist() == [0, 1, 2, 3] * 3


def test_live_answers_are_hits_in_hbm_and_recorded_ones_are_not(make: Maker) -> None:
    workload = make(1, 2, first=1_024, new=512, output=256)
    live = play(workload, "off", sessions=1, answers="live")
    recorded = play(workload, "off", sessions=1, answers="recorded")
    assert live.hbm.tolist() == [0, (1_024 + 255) // 16 * 16]
    assert recorded.hbm.tolist() == [0, 1_024]


def test_closed_keeps_n_sessions_alive_and_plays_every_turn_once(make: Maker) -> None:
    workload = make(7, 4, first=2_048, gap=1.0)
    outcome = play(workload, "off", sessions=3)
    assert len(outcome.ttft_s) == 28
    assert np.bincount(outcome.session).tolist() == [4] * 7
    assert len(play(workload, "off", sessions=20).ttft_s) == 21 * 4, "as many whole copies as N needs"


def test_gaps_come_between_the_turns(make: Maker) -> None:
    workload = make(1, 5, first=1_024, gap=10.0)
    idle = play(workload, "off", sessions=1)
    busy = play(make(1, 5, first=1_024, gap=0.0), "off", sessions=1)
    assert idle.total_s - busy.total_s == pytest.approx(40, abs=1e-6)


def test_sub_agents_start_after_their_turn_and_hold_their_parent_up(tmp_path: Path) -> None:
    path = tmp_path / "family.jsonl"
    blocks = Blocks(reuse=0, new=16)
    with TraceWriter(path, Header(version=1, fidelity="blocks", block_size=BLOCK)) as writer:
        writer.session(Session(id="main"))
        writer.session(Session(id="sub", parent=Parent(session="main", turn=0)))
        writer.turn(Turn(session="main", index=0, blocks=blocks, output_tokens=10))
        writer.turn(Turn(session="sub", index=0, blocks=blocks, output_tokens=1000, gap=Gap("tool", 3.0)))
        writer.turn(
            Turn(
                session="main",
                index=1,
                blocks=Blocks(reuse=16, new=2),
                output_tokens=10,
                gap=Gap("tool", 2.0),
            )
        )
        writer.end("main")
        writer.end("sub")
    with open_trace(path) as trace:
        outcome = play(Workload(trace), "off", sessions=1)
    assert outcome.output.tolist() == [10, 1000, 10]
    first, child, second = outcome.e2e_s
    assert outcome.total_s == pytest.approx(first + 3.0 + child + 2.0 + second)


def test_a_fork_shares_its_parents_prefix_whichever_plays_first(tmp_path: Path) -> None:
    path = tmp_path / "fork.jsonl"
    with TraceWriter(path, Header(version=1, fidelity="blocks", block_size=BLOCK)) as writer:
        for name in ("a", "b"):
            writer.session(Session(id=name))
        writer.turn(Turn(session="a", index=0, blocks=Blocks(reuse=0, new=100), output_tokens=1))
        writer.turn(
            Turn(session="b", index=0, blocks=Blocks(reuse=60, new=10, from_=("a", 0)), output_tokens=1)
        )
        writer.end("a")
        writer.end("b")
    with open_trace(path) as trace:
        outcome = play(Workload(trace), "off", sessions=1)
    assert outcome.hbm.tolist() == [0, 60 * BLOCK]


def test_turns_that_can_never_fit_are_counted_not_dropped_silently(make: Maker) -> None:
    blog = profiles.load("blog")
    tight = msgspec.structs.replace(blog, arms={"off": profiles.Arm(pool_tokens=2_000)})
    outcome = WhatIf(tight, "off", make(2, 3, first=1_024, new=512), sessions=2).run()
    assert outcome.rejected > 0
    assert outcome.rejected + len(outcome.ttft_s) == 6


def test_the_knee_is_found_exactly(make: Maker) -> None:
    workload = make(12, 4)
    promise = grids.Promise(8.0)
    blog = profiles.load("blog")

    def knee(sessions: list[int], exact: bool) -> int | None:
        configured = grids.configurations(blog, ["off"], [], [])
        return grids.run(workload, configured, sessions, promise=promise, schedule="sweep", find_knee=exact)[
            1
        ]["off"]

    brute = max(n for n in range(1, 13) if knee([n], False) is not None)
    assert brute == 8, "C = 8.40: the ninth context breaks it"
    assert knee([2, 12], True) == brute
    assert knee([2, 12], False) == 2
    assert knee([12], False) is None


def test_grid_names_every_configuration() -> None:
    blog = profiles.load("blog")
    tier = profiles.Tier(name="fast", read_gb_s=100)
    names = [name for name, _, _ in grids.configurations(blog, ["off", "offload"], [100, 200], [None, tier])]
    assert names[:2] == ["off, HBM 100 GB, no tier", "off, HBM 100 GB, fast"]
    assert len(set(names)) == 8


def test_a_trace_of_lengths_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "lengths.jsonl"
    with TraceWriter(path, Header(version=1, fidelity="lengths")) as writer:
        writer.session(Session(id="a"))
        writer.turn(Turn(session="a", index=0, input_tokens=5))
        writer.end("a")
    with open_trace(path) as trace, pytest.raises(InputError, match="no reuse can be told"):
        Workload(trace)


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "<b>.jsonl", 3, 3)
    tier = tmp_path / "fast.toml"
    tier.write_text('name = "<script>"\nread_gb_s = 100.0\n')
    out = tmp_path / "grid.html"
    arguments = ["whatif", str(path), "--sessions", "1,3", "--slo-ttft-s", "5", "--html", str(out)]
    assert cli.main([*arguments, "--tier", "none", "--tier", str(tier), "--arm", "offload", "--json"]) == 0
    grid = json.loads(capsys.readouterr().out)
    assert [(row["configuration"], row["sessions"], row["turns"]) for row in grid["results"]] == [
        ("offload, no tier", 1, 9), ("offload, no tier", 3, 9), ("offload, <script>", 1, 9), ("offload, <script>", 3, 9),
    ]  # fmt: skip
    text = out.read_text()
    assert "<script>" not in text
    assert "&lt;script&gt;" in text
    assert "<b>" not in text
    assert cli.main([*arguments, "--knee"]) == 0
    assert "the promise" in capsys.readouterr().out


@pytest.mark.parametrize(
    "more",
    [["--sessions", "0"], ["--sessions", "1.5"], ["--sessions", "x"], ["--hbm", "-1"], ["--tier", "nope"], ["--arm", "nope"],
     ["--slo-ttft-s", "nan"], ["--slo-quantile", "2"], ["--knee"], ["--output-tokens", "0"], ["--html", "/proc/x"], ["--profile", "no"]],
)  # fmt: skip
def test_bad_arguments(more: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write(tmp_path / "t.jsonl", 1, 1, first=64)
    assert cli.main(["whatif", str(path), *more]) == 2
    assert capsys.readouterr().err.count("\n") == 1


def test_the_page_is_written_over_nothing_that_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path, tier = write(tmp_path / "t.jsonl", 1, 1, first=64), tmp_path / "fast.toml"
    tier.write_text('name = "fast"\nread_gb_s = 100.0\n')
    for name in (path, tier):
        before = name.read_bytes()
        assert cli.main(["whatif", str(path), "--tier", str(tier), "--html", str(name)]) == 2
        assert "is both read and written; choose another --html" in capsys.readouterr().err
        assert name.read_bytes() == before


def test_page_marks_itself_as_simulated(make: Maker) -> None:
    results, knee = grids.run(make(1, 1), grids.configurations(profiles.load("blog"), ["off"], [], []), [1])
    grid = grids.Grid(
        profile="blog", trace="t", schedule="closed", answers="live", promise=None, results=results, knee=knee
    )
    assert "not evidence" in page.render(grid)


def test_the_measured_h200_in_a_sweep(make: Maker) -> None:
    """3 x 140,000 tokens round robin, 8 tokens out: hit tokens as measured, TTFT within 10 %."""
    workload = make(3, 3, first=140_032, new=64, output=1)
    for arm, hbm, external, seconds in (("off", 72_256, 0, 7.82), ("lmcache-cpu", 72_256, 67_520, 0.40)):
        outcome = WhatIf(profiles.load("h200"), arm, workload, sessions=3, schedule="sweep").run()
        later = outcome.klass == 1
        assert outcome.hbm[later] == pytest.approx([hbm] * 6, abs=400), (
            "contexts are 32 to 160 tokens longer here, and so is what stays of the others shorter"
        )
        assert outcome.external[later] == pytest.approx([external] * 6, abs=700)
        assert outcome.ttft_s[later] == pytest.approx([seconds] * 6, rel=0.1)
