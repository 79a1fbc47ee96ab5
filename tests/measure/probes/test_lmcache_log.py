"""LMCache's log lines, as version 0.5.3 wrote them on one H200 (times and ids shortened)."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.measure.probes.lmcache_log import Lookup, client_ids, read_log
from loadgen.measure.sample import Tiers

HEAD = "(EngineCore pid=747) [2026-11-29 12:29:10,951] LMCache INFO: "
REAL = Path(__file__).parents[4] / "shared" / "samples" / "h200" / "lmcache_log_excerpt.txt"


def lookup(name: str, total: int, hbm: int, hit: int, load: int) -> bytes:
    return (
        f"{HEAD}Reqid: {name}, Total tokens {total}, Inference Engine computed tokens: {hbm}, LMCache hit tokens: {hit}, "
        f"need to load: {load} (vllm_v1_adapter.py:1473:lmcache.integration.vllm.vllm_v1_adapter)\n"
    ).encode()


def retrieved(name: str, got: int, wanted: int) -> bytes:
    return (
        f"{HEAD}[req_id={name}] Retrieved {got} out of {wanted} required tokens (from 20000 total tokens). "
        "size: 1.0000 gb, cost 38.4619 ms, throughput: 25.9997 GB/s; (cache_engine.py:800:lmcache.v1.cache_engine)\n"
    ).encode()


@pytest.mark.parametrize(
    ("lines", "tiers"),
    [
        ([lookup("r", 2000, 0, 0, 0)], Tiers(compute=2000)),
        ([lookup("r", 20000, 288, 19968, 19680)], Tiers(compute=32, hbm=288, external=19680)),
        ([lookup("r", 512, 0, 512, 511)], Tiers(compute=1, external=511)),  # a full hit
        ([lookup("r", 2000, 1984, 1792, -192)], Tiers(compute=16, hbm=1984)),  # HBM reaches further
        # the load rewrites a part of a chunk that HBM has: 19,712 wanted where 19,680 were needed
        (
            [lookup("r", 20000, 288, 19968, 19680), retrieved("r", 19712, 19712)],
            Tiers(compute=32, hbm=288, external=19680),
        ),
        # evicted between lookup and load on one of two ranks
        (
            [lookup("r", 20000, 0, 19968, 19968), retrieved("r", 19968, 19968), retrieved("r", 19712, 19968)],
            Tiers(compute=288, external=19712),
        ),
        # looked up again while it waited; then preempted with 40 tokens of its answer
        (
            [lookup("r", 2000, 0, 0, 0), lookup("r", 2000, 16, 1792, 1776), lookup("r", 2040, 0, 0, 0)],
            Tiers(compute=208, hbm=16, external=1776),
        ),
    ],
)
def test_where_a_prompt_came_from(lines: list[bytes], tiers: Tiers) -> None:
    found = read_log([b"noise\n", *lines, b"Reqid: r, cut in the mid"])["r"]
    assert found.tiers == tiers
    assert tiers.compute + tiers.hbm + tiers.external == found.total


def test_a_line_that_cannot_be_is_passed_over() -> None:
    assert read_log([lookup("r", 100, 200, 0, 0), retrieved("unknown", 1, 2)]) == {}


@pytest.mark.parametrize(
    ("engine", "client"),
    [
        ("chatcmpl-4f2a91c0-s0003-4-1-0badf00d", "4f2a91c0-s0003-4-1"),
        ("chatcmpl-4f2a91c0-s0003-4-1", "4f2a91c0-s0003-4-1"),
        ("cmpl-4f2a91c0-s0003-4-1-0-915986a0", "4f2a91c0-s0003-4-1"),
        ("cmpl-4f2a91c0-s0003-4-1-0", "4f2a91c0-s0003-4-1"),
        ("4f2a91c0-s0003-4-1", "4f2a91c0-s0003-4-1"),
    ],
)
def test_the_clients_id_is_inside_the_engines(engine: str, client: str) -> None:
    assert client in client_ids(engine)


def test_a_chat_id_does_not_lose_its_attempt() -> None:
    assert "4f2a91c0-s0003-4" not in client_ids("chatcmpl-4f2a91c0-s0003-4-1-0badf00d")


@pytest.mark.skipif(not REAL.is_file(), reason="no log of a real server here")
def test_a_real_log() -> None:
    with REAL.open("rb") as file:
        found = read_log(file)
    assert found["cmpl-b285d19a04828774-0-915986a0"] == Lookup(total=2000, hbm=0, load=0)
    assert len(found) >= 5
    assert all(one.tiers.compute == one.total for one in found.values() if not one.hbm and not one.load)
