"""Synthetic run folders: a sweep whose times are chosen, so that every figure of a report can be checked by hand."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from loadgen.measure.sample import Sample, Tiers, TurnClass

SECOND = 1_000_000_000
MONO = 5_000 * SECOND
WALL = 1_750_000_000 * SECOND
CONTEXT = 140_000
OUTPUT = 128


def sweep(
    *,
    arm: str = "off",
    sessions: int = 10,
    turns: int = 5,
    first_s: float = 22.0,
    reuse_s: float = 22.0,
    tpot_s: float = 0.0145,
    scale: float = 1.0,
    hit: int = 0,
    rep: int = 0,
) -> Iterator[Sample]:
    """One sweep at width 1, TTFTs in endpoint seconds; later turns are slower by a millisecond a session, so that ranks are known."""
    now = MONO
    for turn in range(turns):
        for session in range(sessions):
            ttft = (first_s if turn == 0 else reuse_s) + session * 0.001
            first = now + int(ttft / scale * SECOND)
            last = first + int(tpot_s * (OUTPUT - 1) / scale * SECOND)
            prompt = CONTEXT + turn * 200
            cached = hit if turn else 0
            yield Sample(
                run="synthetic",
                arm=arm,
                rep=rep,
                session=f"s{session}",
                turn=turn,
                klass=TurnClass.REUSE if turn else TurnClass.FIRST,
                worker="w0",
                endpoint="http://127.0.0.1:1",
                request_id=f"{session}-{turn}",
                intended_ns=now - 1000,
                send_ns=now,
                sent_ns=now + 50_000,
                headers_ns=now + 100_000,
                first_byte_ns=first,
                first_token_ns=first,
                first_text_ns=first,
                last_token_ns=last,
                end_ns=last + 10_000,
                clock="kernel",
                lag_ns=20_000,
                prompt_tokens=prompt,
                target_tokens=prompt,
                expected_reuse=prompt - 200 if turn else 0,
                cached_tokens=cached,
                output_tokens=OUTPUT,
                requested_tokens=OUTPUT,
                first_event_tokens=1,
                chunks=OUTPUT,
                max_gap_ns=int(tpot_s / scale * SECOND),
                finish="length",
                tiers=Tiers(compute=prompt - cached, external=cached),
                tier_source="response",
            )
            now = last + 20_000


def client_line(**changes: Any) -> dict[str, Any]:
    line = {
        "mono_ns": MONO,
        "worker": "w0",
        "loop_lag_us": {"p50": 100, "p99": 900, "max": 1500, "n": 200},
        "cpu_share": 0.2,
        "rss_bytes": 1 << 27,
        "gc_pause_us_max": 0,
        "sends_late": 0,
        "final": True,
    }
    return line | changes
