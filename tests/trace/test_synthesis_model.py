"""Each part of the parametric model: what it draws, and that a fit recovers what a source was made with."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from loadgen.errors import InputError
from loadgen.trace.features import Conversation, Step, conversations
from loadgen.trace.model import Session
from loadgen.trace.reader import open_trace
from loadgen.trace.synthesis.appends import Cell, tool_cells
from loadgen.trace.synthesis.conform import Row, conform, outside
from loadgen.trace.synthesis.fit import fit
from loadgen.trace.synthesis.habits import (
    NORMAL,
    Appends,
    Limit,
    Stop,
    append_at,
    draw_habits,
    step_at,
)
from loadgen.trace.synthesis.lengths import fit_lengths
from loadgen.trace.synthesis.likeness import fit_likeness, normal_scores
from loadgen.trace.synthesis.loops import fit_loops
from loadgen.trace.synthesis.parametric import synthesize
from loadgen.trace.synthesis.profile import (
    GRID,
    Agent,
    Alike,
    Append,
    Profile,
    Window,
    cholesky,
    load_profile,
    save_profile,
    share_below,
    table,
    value,
)
from loadgen.trace.synthesis.windows import fit_window

TABLES = st.lists(st.floats(0, 1e6), min_size=len(GRID), max_size=len(GRID)).map(sorted)
NO_WINDOW = Window(at=[], spread=0.0, early_tool=0.0, early_human=0.0, events=[])


def step(index: int, prompt: int, before: int, kind: str = "extend", gap: str | None = "tool") -> Step:
    return Step(
        index=index,
        kind="first" if index == 0 else kind,
        prompt=prompt,
        before=before,
        kept=before,
        new=max(0, prompt - before),
        output=100,
        gap_kind=gap if index else None,
        gap_s=1.0 if index else None,
        e2e_s=None,
    )


def walk(name: int, prompts: Sequence[int], gaps: Sequence[str] = ()) -> Conversation:
    """A session of these prompts; one that falls below 0.7 of the last is a compaction."""
    steps = []
    for index, prompt in enumerate(prompts):
        before = prompts[index - 1] if index else 0
        kind = "compaction" if prompt < 0.7 * before else "extend"
        steps.append(step(index, prompt, before, kind, gaps[index] if gaps else "tool"))
    return Conversation(Session(id=f"s{name}", start_s=0.0), steps)


def agent(**changes: object) -> Agent:
    return msgspec.structs.replace(load_profile("benchmark").main, **changes)


@example([0.0] * 5 + [5e-324] + [1.0] * 14, 0.25)
@given(TABLES, st.floats(0, 1))
def test_share_below_undoes_value(quantiles: list[float], share: float) -> None:
    found = value(quantiles, share)
    assert quantiles[0] <= found <= quantiles[-1] * (1 + 1e-9)
    assert value(quantiles, share_below(quantiles, found)) == pytest.approx(found, rel=1e-6, abs=1e-6)


@given(st.lists(st.floats(-1, 1), min_size=6, max_size=6))
def test_cholesky_gives_back_its_matrix_or_nothing(r: list[float]) -> None:
    rows = [
        [1.0, r[0], r[1], r[2]],
        [r[0], 1.0, r[3], r[4]],
        [r[1], r[3], 1.0, r[5]],
        [r[2], r[4], r[5], 1.0],
    ]
    lower = cholesky(rows)
    smallest = float(np.linalg.eigvalsh(np.array(rows)).min())
    if lower is None:
        assert smallest < 1e-6
    else:
        assert np.allclose(np.array(lower) @ np.array(lower).T, rows)
        assert smallest > -1e-6


@given(st.lists(st.tuples(st.floats(0, 100), st.integers()), max_size=6), st.floats(-1, 101))
def test_the_last_step_at_or_before_a_place(steps: list[tuple[float, int]], place: float) -> None:
    steps = sorted(steps)
    below = [held for begin, held in steps if begin <= place]
    assert step_at(steps, place) == (below[-1] if below else None)


@given(st.integers(1, 40), st.integers(0, 300))
def test_a_table_of_the_turn_and_the_prompt(turn: int, prompt: int) -> None:
    made = [Append(turn=t, prompt=p, tokens=[]) for t, p in ((1, 0), (5, 0), (5, 100), (20, 0), (20, 200))]
    found = append_at(made, turn, prompt)
    assert found is not None
    last = max(a.turn for a in made if a.turn <= turn)
    assert (found.turn, found.prompt) == (
        last,
        max(a.prompt for a in made if a.turn == last and a.prompt <= prompt),
    )


@settings(max_examples=25)
@given(TABLES.map(lambda t: [1 + v / 1e4 for v in t]), st.integers(0, 9))
def test_lengths_follow_their_table_where_prompts_do_not_matter(lengths: list[float], seed: int) -> None:
    rng = random.Random(seed)
    drawn = []
    for _ in range(300):
        stop = Stop(lengths, [(0.0, 1.0)], -math.log(1 - rng.random()))
        turns = 1
        while not stop.after(1000):
            turns += 1
        drawn.append(turns)
    for turns in (2, 10, 50):
        expected = share_below(lengths, turns + 0.5)
        assert np.mean(np.array(drawn) <= turns) == pytest.approx(expected, abs=0.12)


@given(st.integers(1, 400_000), st.integers(0, 99))
def test_no_session_is_met_beyond_its_window(first: int, seed: int) -> None:
    window = Window(
        at=[(100_000, 0.0), (200_000, 0.9), (500_000, 1.0)],
        spread=0.0,
        early_tool=0.0,
        early_human=0.0,
        events=[],
    )
    limit = Limit(window, first, random.Random(seed))
    assert not limit.reached(first, False)
    assert limit.reached(500_001, False)


def test_a_window_that_no_session_has_is_never_reached() -> None:
    assert not Limit(NO_WINDOW, 1, random.Random(0)).reached(10**9, True)


def test_habits_correlate_as_the_profile_says() -> None:
    uniform = list(GRID)
    habits = [[1.0, 0.5, -0.3, 0.0], [0.5, 1.0, 0.2, 0.1], [-0.3, 0.2, 1.0, -0.6], [0.0, 0.1, -0.6, 1.0]]
    one = agent(first=uniform, loop_end=uniform, habits=habits)
    rng = random.Random(4)
    drawn = [draw_habits(one, rng) for _ in range(4000)]
    scores = [
        normal_scores([h.patience for h in drawn]),
        normal_scores([h.first for h in drawn]),
        normal_scores([h.loop_end for h in drawn]),
        normal_scores([h.growth for h in drawn]),
    ]
    assert np.corrcoef(scores) == pytest.approx(np.array(habits), abs=0.06)
    assert np.mean([h.patience for h in drawn]) == pytest.approx(1, abs=0.05)  # of an exponential


def test_appends_keep_their_table_however_alike() -> None:
    rng = random.Random(5)
    tokens = table([rng.lognormvariate(6, 1.5) for _ in range(3000)])
    one = agent(
        alike=Alike(decay=0.7, answer=0.4), append_tool=[Append(turn=1, tokens=tokens, growth=0.4, run=0.5)]
    )
    drawn = []
    for _ in range(400):
        appends = Appends(one, rng.gauss(0, 1), rng)
        drawn += [appends.tokens(turn, 50_000, rng.gauss(0, 1)) for turn in range(1, 30)]
    for q in (0.1, 0.5, 0.9, 0.99):
        assert np.quantile(drawn, q) == pytest.approx(value(tokens, q), rel=0.12)


def test_a_fit_tells_large_prompts_from_short_patience() -> None:
    rng = random.Random(6)
    found = []
    for name in range(600):
        prompts, growth = [20_000], rng.choice((1000, 4000))
        while rng.random() > (0.02 if prompts[-1] < 100_000 else 0.08):
            prompts.append(prompts[-1] + growth)
        found.append(walk(name, prompts))
    lengths = fit_lengths(found)
    low, high = (
        float(np.mean([f for begin, f in lengths.stops if a <= begin < b]))
        for a, b in ((1, 80_000), (110_000, 1e9))
    )
    assert 2.2 < high / low < 5  # 4; steps of the function are drawn towards 1
    # the residuals of a model that holds are exponential
    assert lengths.residuals.mean() == pytest.approx(1, abs=0.05)
    assert np.mean(lengths.residuals > 1) == pytest.approx(math.exp(-1), abs=0.06)


def test_lengths_that_no_prompt_changes_are_the_table() -> None:
    rng = random.Random(7)
    found = [walk(n, [rng.randrange(10_000, 90_000)] * rng.randrange(3, 60)) for n in range(300)]
    lengths = fit_lengths(found)
    counts = [len(c.steps) for c in found]
    for q in (0.1, 0.5, 0.9):
        assert value(lengths.requests, q) == pytest.approx(np.quantile(counts, q), abs=3)
    assert all(0.4 < factor < 2 for _, factor in lengths.stops)


def test_windows_are_told_from_sessions_that_mostly_end_before() -> None:
    rng = random.Random(8)
    found = []
    for name in range(500):
        window = rng.gauss(150_000, 6000) if rng.random() < 0.7 else math.inf
        prompts = [20_000]
        while rng.random() > 0.012 and prompts[-1] < 400_000:
            if prompts[-1] >= window or rng.random() < 0.002:
                prompts.append(12_000)
            else:
                prompts.append(prompts[-1] + round(rng.expovariate(1 / 2500)))
        found.append(walk(name, prompts))
    window = fit_window(found)
    shares = {
        prompt: max((s for p, s in window.at if p <= prompt), default=0.0)
        for prompt in (138_000, 150_000, 170_000)
    }
    assert shares[138_000] < 0.08
    assert shares[150_000] == pytest.approx(0.35, abs=0.12)
    assert shares[170_000] == pytest.approx(0.7, abs=0.08)
    assert window.at[-1] == (max(s.prompt for c in found for s in c.steps), 1.0)
    assert window.early_tool == pytest.approx(0.002, abs=0.001)
    assert window.spread < 0.02
    assert len(window.events) <= 200


def test_no_compaction_is_no_window() -> None:
    assert fit_window([walk(0, [1000, 2000, 3000])]) == NO_WINDOW


def test_rates_of_short_sessions_are_not_taken_at_their_word() -> None:
    rng = random.Random(9)
    found, rates = [], []
    for name in range(400):
        rate = rng.betavariate(2, 8)
        rates.append(rate)
        turns = rng.choice((6, 60))
        gaps = ["human" if rng.random() < rate * (0.5 if k < 5 else 1) else "tool" for k in range(turns)]
        found.append(walk(name, [1000 + k for k in range(turns)], gaps))
    loops = fit_loops(found, (1, 5))
    assert loops.factors[0] == (0.0, pytest.approx(0.5, abs=0.1))
    assert loops.factors[1] == (5.0, 1.0)
    for q in (0.1, 0.5, 0.9):
        assert value(loops.rates, q) == pytest.approx(np.quantile(rates, q), abs=0.05)
    assert np.corrcoef(loops.scores, rates)[0, 1] > 0.6
    assert abs(loops.with_length) < 0.2  # rates were drawn without regard to the length


def test_a_source_without_humans_has_no_loops() -> None:
    loops = fit_loops([walk(0, [1000] * 9)], (1, 5))
    assert loops.rates == [0.0] * len(GRID)
    assert fit_loops([walk(0, [1000] * 9, ["human"] * 9)], (1,)).rates == [1.0] * len(GRID)


def test_likeness_is_recovered() -> None:
    rng = random.Random(10)
    tokens = table([rng.lognormvariate(6.5, 1.2) for _ in range(3000)])
    source = agent(
        alike=Alike(decay=0.6, answer=0.35),
        append_tool=[Append(turn=1, tokens=tokens, growth=0.4, run=0.55)],
        habits=[[1.0, 0, 0, -0.5], [0, 1.0, 0, 0], [0, 0, 1.0, 0], [-0.5, 0, 0, 1.0]],
    )
    found = []
    residuals = []
    for name in range(500):
        habits = draw_habits(source, rng)
        appends = Appends(source, habits.growth, rng)
        prompts, outputs = [20_000], []
        for turn in range(1, 60):
            answer = rng.gauss(0, 1)
            outputs.append(round(100 * math.exp(answer)))
            prompts.append(prompts[-1] + round(appends.tokens(turn, prompts[-1], answer)))
        c = walk(name, prompts)
        for s, output in zip(c.steps, outputs, strict=False):
            s.output = output
        found.append(c)
        residuals.append(habits.patience)
    cells = [Cell(1, 20, 0, 10**9), Cell(20, 10**9, 0, 10**9)]
    made = fit_likeness(found, cells, np.array(residuals), fit_loops(found, (1,)))
    late = made.loadings[-1]
    assert late.growth == pytest.approx(0.4, abs=0.08)
    assert late.run == pytest.approx(0.55, abs=0.08)
    assert made.alike.decay == pytest.approx(0.6, abs=0.1)
    assert made.alike.answer == pytest.approx(0.35, abs=0.05)
    assert made.habits[0][-1] == pytest.approx(-0.5, abs=0.12)
    assert abs(late.level) < 0.1


def test_few_sessions_are_not_alike() -> None:
    found = [walk(n, [1000 * k for k in range(1, 9)]) for n in range(5)]
    cells = tool_cells([s for c in found for s in c.steps[1:]])
    made = fit_likeness(found, cells, np.ones(5), fit_loops(found, (1,)))
    assert made.alike == Alike(decay=0.0, answer=0.0)
    assert all(loading.growth == 0 for loading in made.loadings)


@given(st.lists(st.tuples(st.integers(1, 60), st.integers(1, 300_000)), max_size=300))
def test_every_append_has_one_table(rows: list[tuple[int, int]]) -> None:
    steps = [step(turn, before + 10, before) for turn, before in rows]
    cells = tool_cells(steps)
    assert all(sum(cell.holds(s) for cell in cells) == 1 for s in steps)


@given(st.lists(st.integers(0, 5), max_size=40))
def test_normal_scores_rise_with_their_values_and_centre(values: list[int]) -> None:
    scores = normal_scores(values)
    assert len(scores) == len(values)
    for a, x in zip(values, scores, strict=True):
        for b, y in zip(values, scores, strict=True):
            assert (a < b) <= (x <= y)
            assert (a == b) <= (x == y)
    assert all(abs(NORMAL.cdf(x) - 0.5) <= 0.5 for x in scores)


def made(profile: Profile, folder: Path, sessions: int, seed: int) -> list[Conversation]:
    with open_trace(synthesize(profile, folder / f"{seed}.jsonl", sessions=sessions, seed=seed)) as trace:
        return list(conversations(trace))


def test_a_fit_to_a_synthetic_trace_gives_it_back(tmp_path: Path) -> None:
    """Compactions, the largest contexts and hits, which come out of all parts together, within the source's intervals."""
    source = made(load_profile("heavy"), tmp_path, 400, 21)
    profile = fit(source, name="again", source="synthetic", shared_prefix=15_100, block_size=64)
    assert profile == fit(source, name="again", source="synthetic", shared_prefix=15_100, block_size=64)
    rows = conform(source, made(profile, tmp_path, 1500, 22))
    assert outside(rows) <= 3, [row.name for row in rows if row.inside is False]
    must = [
        "requests mean",
        "largest context p50",
        "largest context p90",
        "hit share, all tokens",
        "hit share p50",
        "sessions with a compaction",
        "compactions per 1000",
        "human turns mean",
    ]
    assert [row.name for row in rows if row.name in must and not row.inside] == []


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.integers(0, 10**6),
    st.integers(10, 60),
    st.sampled_from([0.0, 0.2, 1.0]),
    st.sampled_from([0.0, 0.05, 0.4]),
    st.sampled_from([1, 30_000]),
)
def test_any_source_gives_a_profile_that_loads_and_plays(
    tmp_path: Path, seed: int, sessions: int, human: float, leaving: float, scale: int
) -> None:
    rng = random.Random(seed)
    found = []
    for name in range(sessions):
        prompts = [rng.randrange(1, 39_000)]
        for _ in range(rng.randrange(10, 40)):
            grown = prompts[-1] + rng.randrange(scale)
            prompts.append(rng.randrange(1, grown + 1) if rng.random() < leaving else grown)
        found.append(walk(name, prompts, ["human" if rng.random() < human else "tool" for _ in prompts]))
        for s in found[-1].steps[1:]:
            if s.prompt < s.before and s.kind == "extend":
                s.kind = "break"
    save_profile(fit(found, name="any", source="random"), tmp_path / "p.json")
    assert made(load_profile(str(tmp_path / "p.json")), tmp_path, 5, seed)


def test_outside_counts_what_is_known_to_be() -> None:
    rows = [Row("a", 1, 0, 2, 1), Row("b", 1, 0, 2, 3), Row("c", None, None, None, 3)]
    assert outside(rows) == 1


def test_a_prefix_beyond_all_first_prompts_is_no_fit(tmp_path: Path) -> None:
    source = made(load_profile("benchmark"), tmp_path, 12, 1)
    longest = max(c.steps[0].prompt for c in source)
    assert fit(source, name="x", source="s", shared_prefix=longest).shared_prefix == longest
    with pytest.raises(InputError, match=f"larger than any first prompt of s: its longest has {longest:,}"):
        fit(source, name="x", source="s", shared_prefix=longest + 1)
