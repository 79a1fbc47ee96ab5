"""External tiers: where load time lands, shared links, several tiers, failures, staging."""

from __future__ import annotations

import msgspec
import pytest

from loadgen.sim import profile as profiles
from loadgen.sim.connector import ExternalTier
from loadgen.sim.engine import Engine
from loadgen.sim.link import Link
from loadgen.sim.profile import Arm, Profile, Tier
from loadgen.sim.request import Request
from loadgen.sim.streams import Stream

CONTEXT = 140_000
STORED = 139_776
NET = Tier(name="net", read_gb_s=10.0)


def machine(*tiers: Tier, **more: object) -> Engine:
    blog = profiles.load("blog")
    arm = Arm(pool_tokens=643_643, tiers=list(tiers), **more)  # type: ignore[arg-type]
    return Engine(msgspec.structs.replace(blog, arms={"x": arm}), "x")


def run(engine: Engine, *requests: Request) -> None:
    for request in requests:
        engine.submit(request)
    while any(request.state not in ("finished", "failed") for request in requests):
        assert engine.step(leap=True) is not None


def fresh(
    engine: Engine, stream: Stream, prompt: int = CONTEXT, output: int = 2, after_s: float = 0.0
) -> Request:
    return Request(stream, prompt, output, ready_s=engine.now_s + after_s)


def stored(engine: Engine, count: int) -> list[Stream]:
    """Contexts that only the external tiers hold."""
    streams = [Stream() for _ in range(count)]
    for stream in streams:
        run(engine, fresh(engine, stream))
        assert engine.store.clear()
    return streams


def test_load_time_is_prefill_time_with_a_synchronous_connector_and_queue_time_with_an_asynchronous_one() -> (
    None
):
    transfer = STORED * 360_448 / 10e9
    for connector, queued in (("sync", 0.0), ("async", transfer)):
        engine = machine(NET, connector=connector)
        (stream,) = stored(engine, 1)
        request = fresh(engine, stream)
        run(engine, request)
        assert request.external == STORED
        assert request.queued_s == pytest.approx(queued, abs=0.01)
        assert request.first_token_s - request.ready_s == pytest.approx(transfer + 0.052, rel=0.02)
        assert request.load_s == pytest.approx(transfer, rel=1e-6)


def test_asynchronous_loads_share_the_link_and_let_others_decode() -> None:
    engine = machine(NET, connector="async")
    streams = stored(engine, 3)
    talker = fresh(engine, Stream(), 1_000, 300)
    loaders = [fresh(engine, stream, after_s=0.5) for stream in streams]
    run(engine, talker, *loaders)
    transfer = STORED * 360_448 / 10e9
    assert [loader.load_s for loader in loaders] == pytest.approx([3 * transfer] * 3, rel=0.01)
    assert (talker.finish_s - talker.first_token_s) / 299 < 0.0135


def test_synchronous_loads_come_one_after_the_other() -> None:
    engine = machine(NET)
    streams = stored(engine, 2)
    loaders = [fresh(engine, stream, 100_000) for stream in streams]
    run(engine, *loaders)
    transfer = 99_840 * 360_448 / 10e9
    assert max(loader.first_token_s - loader.ready_s for loader in loaders) == pytest.approx(
        2 * transfer, rel=0.05
    )


def test_a_link_in_equal_parts() -> None:
    link = Link(ExternalTier(msgspec.structs.replace(NET, read_gb_s=1e-8), 1, None))  # 10 bytes a second
    link.add(0.0, 100, "a")
    assert link.next_s() == 10.0
    link.add(5.0, 25, "b")  # a has 50 left; both at 5 bytes a second
    assert link.ended(9.9) == []
    assert link.ended(10.0) == [(10.0, "b")]
    assert link.ended(100.0) == [(12.5, "a")]
    assert link.next_s() == float("inf")


def test_a_fast_tier_in_front_of_a_slow_one_keeps_what_it_has_room_for() -> None:
    cpu = Tier(name="cpu", source="host", read_gb_s=60.0, capacity_bytes=1.5 * STORED * 360_448)
    disk = Tier(name="disk", source="disk", read_gb_s=5.0)
    engine = machine(cpu, disk)
    first, second = stored(engine, 2)
    request = fresh(engine, first)
    run(engine, request)
    assert request.external == STORED
    assert 0 < request.sources["host"] < STORED, "the second context took half of the first one's room"
    assert request.sources["host"] + request.sources["disk"] == STORED
    engine.store.clear()
    again = fresh(engine, first)
    run(engine, again)
    assert again.sources == {"host": STORED}, "what came from the disk was kept in the CPU tier"
    engine.store.clear()
    evicted = fresh(engine, second)
    run(engine, evicted)
    assert evicted.sources["disk"] > 0


@pytest.mark.parametrize("connector", ["sync", "async"])
def test_a_failed_load_is_recomputed_or_fails_the_request(connector: str) -> None:
    flaky = msgspec.structs.replace(NET, fail_every=2)
    engine = machine(flaky, connector=connector)
    (stream,) = stored(engine, 1)
    seen = []
    for _ in range(4):
        request = fresh(engine, stream)
        run(engine, request)
        seen.append(request.external)
        engine.store.clear()
    assert seen == [STORED, 0, STORED, 0]
    strict = machine(flaky, connector=connector, on_load_failure="fail")
    (stream,) = stored(strict, 1)
    states = []
    for _ in range(2):
        request = fresh(strict, stream)
        run(strict, request)
        states.append(request.state)
        strict.store.clear()
    assert states == ["finished", "failed"]
    assert strict.store.used == 0


def test_a_staging_buffer_smaller_than_the_context_cuts_the_hit() -> None:
    engine = machine(NET, staging_bytes=50_000 * 360_448)
    (stream,) = stored(engine, 1)
    request = fresh(engine, stream)
    run(engine, request)
    assert request.external == 50_000 // 256 * 256


def test_writes_are_free_until_the_buffer_is_full_and_then_wait_for_the_drain() -> None:
    tier = ExternalTier(
        Tier(name="d", read_gb_s=1, write_gb_s=1e-7, write_buffer_bytes=1000), 1, None
    )  # 100 bytes a second
    assert tier.write_s(800, at_s=0.0) == 0.0
    assert tier.write_s(400, at_s=1.0) == pytest.approx((800 - 100 + 400 - 1000) / 100)
    assert tier.write_s(500, at_s=100.0) == 0.0, "drained meanwhile"
    assert tier.stalled_s == pytest.approx(1.0)


def test_an_aborted_asynchronous_load_gives_its_blocks_back() -> None:
    engine = machine(NET, connector="async")
    (stream,) = stored(engine, 1)
    request = fresh(engine, stream)
    engine.submit(request)
    engine.step()
    assert engine.loading == 1
    engine.abort(request)
    assert engine.loading == 0
    assert engine.store.used == engine.store.idle
    other = fresh(engine, Stream(), 1_000)
    run(engine, other)
    assert other.emitted == 2


def test_profiles_that_make_no_sense(tmp_path: object) -> None:
    blog = profiles.load("blog")

    def broken(**changes: object) -> Profile:
        return msgspec.structs.replace(
            blog, arms={"x": Arm(pool_tokens=1_000, tiers=[msgspec.structs.replace(NET, **changes)])}
        )

    for changes in ({"read_gb_s": 0.0}, {"chunk": 100}, {"chunk": 0}, {"write_gb_s": 0.0}):
        with pytest.raises(profiles.InputError, match="rates must be above 0"):
            profiles.check(broken(**changes))
