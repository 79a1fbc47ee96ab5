"""Leaping over steps must change nothing but the time it takes to compute."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.sim import profile as profiles
from loadgen.sim.engine import Engine
from loadgen.sim.profile import Arm, Scheduler, Tier
from loadgen.sim.request import Request
from loadgen.sim.streams import Stream

TIERS = {
    "none": [],
    "fast": [Tier(name="net", read_gb_s=20.0, store_s_per_token=1e-6)],
    "small": [
        Tier(
            name="disk",
            read_gb_s=5.0,
            read_fixed_s=0.1,
            capacity_bytes=4_000 * 360_448,
            evict="head",
            chunk=64,
        )
    ],
}
TURNS = st.lists(
    st.tuples(
        st.integers(0, 3),  # session
        st.integers(1, 3_000),  # new tokens
        st.integers(1, 700),  # output
        st.floats(0, 4),  # seconds after the one before
    ),
    min_size=1,
    max_size=12,
)


def play(turns: list[tuple[int, int, int, float]], arm: Arm, leap: bool) -> list[tuple[object, ...]]:
    blog = profiles.load("blog")
    small = Scheduler(max_num_batched_tokens=512, max_num_seqs=3)
    engine = Engine(msgspec.structs.replace(blog, arms={"x": arm}, scheduler=small), "x")
    streams = [Stream() for _ in range(4)]
    lengths = [0] * 4
    requests = []
    at = 0.0
    for session, new, output, gap in turns:
        at += gap
        lengths[session] += new
        if engine.fits(lengths[session] + output):
            requests.append(Request(streams[session], lengths[session], output, ready_s=at))
            engine.submit(requests[-1])
    for _ in range(100_000):
        step = engine.step(leap)
        if step is None:
            break
        assert step.end_s >= step.start_s
    assert all(request.state == "finished" and request.emitted == request.output for request in requests)
    assert engine.store.used == engine.store.idle
    return [(r.hbm, r.external, r.preemptions, r.first_token_s, r.finish_s) for r in requests]


@settings(max_examples=60, deadline=None)
@given(TURNS, st.sampled_from(sorted(TIERS)), st.sampled_from(["sync", "async"]), st.integers(200, 700))
def test_leaping_is_stepping(
    turns: list[tuple[int, int, int, float]], tier: str, connector: str, blocks: int
) -> None:
    arm = Arm(pool_tokens=blocks * 16, tiers=TIERS[tier], connector=connector)  # type: ignore[arg-type]
    for stepped, leapt in zip(play(turns, arm, False), play(turns, arm, True), strict=True):
        assert leapt[:3] == stepped[:3]
        assert leapt[3:] == pytest.approx(stepped[3:], rel=1e-9)
