from __future__ import annotations

import weakref

import msgspec
import numpy as np
import pytest

from loadgen.sim import profile as profiles
from loadgen.sim.engine import Engine
from loadgen.sim.profile import Profile
from loadgen.sim.request import Request
from loadgen.sim.streams import Interner, Stream

CONTEXT = 140_000


def play(engine: Engine, stream: Stream, prompt: int = CONTEXT, output: int = 2, **more: object) -> Request:
    """One request alone in the engine, arriving when it is idle."""
    request = Request(stream, prompt, output, ready_s=engine.now_s + engine.cost.host(prompt), **more)  # type: ignore[arg-type]
    run(engine, [request])
    return request


def run(engine: Engine, requests: list[Request], leap: bool = True) -> None:
    for request in requests:
        engine.submit(request)
    while any(request.state not in ("finished", "aborted") for request in requests):
        assert engine.step(leap) is not None


def ttft(engine: Engine, request: Request) -> float:
    return request.first_token_s - request.ready_s + engine.cost.host(request.prompt)


@pytest.fixture
def blog() -> Profile:
    return profiles.load("blog")


@pytest.mark.parametrize(
    ("contexts", "off_hit", "off_ttft", "offload_hit", "offload_ttft"),
    [
        (4, 1.0, 1.0, 1.0, 1.0),
        (5, 1.0, 1.0, 0.60, 3.9),
        (6, 1.0, 1.0, 0.0, 6.6),
        (7, 1.0, 1.0, 0.0, 6.6),
        (8, 1.0, 1.0, 0.0, 6.6),
        (9, 0.40, 16.3, 0.0, 6.6),
        (10, 0.0, 22.0, 0.0, 6.6),
        (12, 0.0, 22.0, 0.0, 6.6),
    ],
)
def test_round_robin_over_n_contexts_gives_the_references_table(
    blog: Profile, contexts: int, off_hit: float, off_ttft: float, offload_hit: float, offload_ttft: float
) -> None:
    for arm, hit, seconds in (("off", off_hit, off_ttft), ("offload", offload_hit, offload_ttft)):
        engine = Engine(blog, arm)
        streams = [Stream() for _ in range(contexts)]
        for _ in range(3):
            last = [play(engine, stream) for stream in streams]
        for request in last:
            assert request.hbm / CONTEXT == pytest.approx(hit, abs=0.006)
            assert ttft(engine, request) == pytest.approx(seconds, rel=0.02)


def test_the_blogs_first_turns_and_tpot(blog: Profile) -> None:
    for arm, first in (("off", 22.0), ("offload", 26.0)):
        engine = Engine(blog, arm)
        request = play(engine, Stream(), output=128)
        assert ttft(engine, request) == pytest.approx(first, rel=0.005)
        assert (request.finish_s - request.first_token_s) / 127 == pytest.approx(0.0145, rel=0.005)


def test_leaping_gives_the_same_times_as_stepping(blog: Profile) -> None:
    def outcome(leap: bool) -> list[tuple[float, float, int]]:
        engine = Engine(blog, "off")
        requests = [Request(Stream(), 3_000 + 777 * n, 40 + 90 * n, ready_s=0.13 * n) for n in range(9)]
        run(engine, requests, leap)
        return [(r.first_token_s, r.finish_s, r.emitted) for r in requests]

    for stepped, leapt in zip(outcome(False), outcome(True), strict=True):
        assert leapt == pytest.approx(stepped, rel=1e-9)


def test_prefill_of_one_request_stalls_the_tokens_of_another(blog: Profile) -> None:
    engine = Engine(blog, "off")
    talker = Request(Stream(), 1_000, 400, ready_s=0.0)
    cold = Request(Stream(), CONTEXT, 1, ready_s=1.0)
    run(engine, [talker, cold], leap=False)
    alone = play(Engine(blog, "off"), Stream(), 1_000, 400)
    slower = (talker.finish_s - talker.first_token_s) - (alone.finish_s - alone.first_token_s)
    assert slower == pytest.approx(21.0, rel=0.02), "the whole prefill runs in steps that the talker shares"


def test_a_synchronous_load_stops_everybody(blog: Profile) -> None:
    engine = Engine(blog, "offload")
    stored = Stream()
    play(engine, stored)
    assert engine.store.clear()
    talker = Request(Stream(), 1_000, 200, ready_s=engine.now_s)
    loader = Request(stored, CONTEXT, 1, ready_s=engine.now_s + 1.0)
    run(engine, [talker, loader], leap=False)
    assert loader.external == 139_776
    assert talker.finish_s - talker.first_token_s > 199 * 0.0126 + 5.5


def small(blog: Profile, pool: int, **scheduler: int) -> Profile:
    arms = {"off": profiles.Arm(pool_tokens=pool)}
    return msgspec.structs.replace(blog, arms=arms, scheduler=profiles.Scheduler(**scheduler))


def test_requests_queue_when_blocks_run_out_and_are_served_in_order(blog: Profile) -> None:
    engine = Engine(small(blog, 10_000), "off")
    requests = [Request(Stream(), 6_000, 20, ready_s=0.0) for _ in range(3)]
    run(engine, requests)
    firsts = [request.first_token_s for request in requests]
    assert firsts == sorted(firsts)
    assert requests[1].scheduled_s >= requests[0].finish_s
    assert requests[1].queued_s > 0
    assert engine.preemptions == 0


def test_growing_answers_preempt_the_youngest_and_everybody_still_gets_all_tokens(blog: Profile) -> None:
    engine = Engine(small(blog, 8_192), "off")
    requests = [Request(Stream(), 2_000, 3_000, ready_s=0.0) for _ in range(3)]
    for request in requests:
        engine.submit(request)
    got = dict.fromkeys(requests, 0)
    while any(request.state != "finished" for request in requests):
        step = engine.step()
        assert step is not None
        for request in [*step.prefilled, *step.decoders]:
            got[request] += 1
    assert engine.preemptions > 0
    assert requests[0].preemptions == 0
    assert set(got.values()) == {3_000}
    assert engine.store.used == engine.store.idle


def test_seats_are_limited(blog: Profile) -> None:
    engine = Engine(small(blog, 100_000, max_num_seqs=2), "off")
    requests = [Request(Stream(), 100, 50, ready_s=0.0) for _ in range(5)]
    for request in requests:
        engine.submit(request)
    most = 0
    while engine.step() is not None:
        most = max(most, engine.running)
    assert most == 2
    assert all(request.emitted == 50 for request in requests)


def test_an_aborted_prefill_leaves_its_chunks_in_the_cache(blog: Profile) -> None:
    engine = Engine(blog, "off")
    stream = Stream()
    request = Request(stream, CONTEXT, 10, ready_s=0.0)
    engine.submit(request)
    engine.step()
    engine.step()
    engine.abort(request)
    assert engine.step() is None
    assert engine.store.used == engine.store.idle
    assert play(engine, stream).hbm == 16_384


def test_a_repeat_recomputes_the_last_token_only(blog: Profile) -> None:
    engine = Engine(blog, "offload")
    stream = Stream()
    play(engine, stream)
    assert play(engine, stream).hbm == 139_984
    salted = play(engine, stream, hbm_space="salt")
    assert (salted.hbm, salted.external) == (0, 139_776)
    tagged = play(engine, stream, hbm_space="other", external_space="tag")
    assert tagged.cached == 0
    whole = Stream()
    play(engine, whole, 32_000)
    assert play(engine, whole, 32_000, hbm_space="salt").external == 31_999


def test_skip_save_is_cold_without_the_write(blog: Profile) -> None:
    engine = Engine(blog, "offload")
    stream = Stream()
    assert ttft(engine, play(engine, stream, save=False)) == pytest.approx(22.0, rel=0.005)
    assert play(engine, stream, hbm_space="salt").cached == 0


def test_the_answer_is_a_hit_when_it_comes_back(blog: Profile) -> None:
    engine = Engine(blog, "off")
    stream = Stream()
    play(engine, stream, 1_000, 300)
    assert play(engine, stream, 2_000).hbm == (1_000 + 300 - 1) // 16 * 16
    other = Stream()
    play(engine, other, 1_000, 300, full=Stream(other, 1_000))
    assert play(engine, other, 2_000).hbm == 1_000 // 16 * 16, (
        "the recorded answer differs from the generated one"
    )


def test_memory_of_contexts_that_fell_out_of_every_tier_is_freed(blog: Profile) -> None:
    interner = Interner()
    engine = Engine(small(blog, 4_096), "off", interner.drop)
    rng = np.random.default_rng(1)
    known: list[weakref.ref[object]] = []
    for _ in range(50):
        stream = interner.intern(rng.integers(0, 1_000, 2_000).astype(np.int32))
        known.append(weakref.ref(stream))
        play(engine, stream, 2_000)
        del stream
    assert sum(ref() is not None for ref in known) <= 3
