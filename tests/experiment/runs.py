"""Run folders with chosen TTFTs, as `loadgen run` would leave them."""

from __future__ import annotations

import json
from pathlib import Path

from loadgen.measure.journal import SampleWriter
from loadgen.measure.run import Clock, Endpoint, Plan, RunInfo, write_run
from loadgen.measure.sample import Sample, Tiers, TurnClass

S = 1_000_000_000


def write_folder(
    folder: Path, arm: str, rep: int, *, reuse_s: float, first_s: float = 2.0, sessions: int = 3
) -> None:
    """A sweep of two rounds, valid in every respect."""
    folder.mkdir(parents=True)
    planned = {f"s{n}": 2 for n in range(sessions)}
    write_run(
        folder,
        RunInfo(
            run=folder.name,
            arm=arm,
            rep=rep,
            created="2026-01-01T00:00:00Z",
            state="finished",
            endpoint=Endpoint(url="http://127.0.0.1:1", model="m"),
            plan=Plan(sessions=sessions, turns=2 * sessions, turns_by_session=planned),
            schedule={"kind": "sweep", "width": 1},
            clocks={"w0": Clock(mono_ns=0, wall_ns=10**18)},
        ),
    )
    now = S
    with SampleWriter(folder / "samples-w0.jsonl") as writer:
        for turn in range(2):
            for n in range(sessions):
                first = now + int((reuse_s if turn else first_s) * S)
                last = first + S // 10
                writer.write(
                    Sample(
                        run=folder.name,
                        arm=arm,
                        rep=rep,
                        session=f"s{n}",
                        turn=turn,
                        klass=TurnClass.REUSE if turn else TurnClass.FIRST,
                        worker="w0",
                        endpoint="http://127.0.0.1:1",
                        request_id=f"{n}-{turn}",
                        intended_ns=now,
                        send_ns=now,
                        sent_ns=now + 1000,
                        headers_ns=now + 2000,
                        first_byte_ns=first,
                        first_token_ns=first,
                        first_text_ns=first,
                        last_token_ns=last,
                        end_ns=last + 1000,
                        clock="kernel",
                        lag_ns=10_000,
                        prompt_tokens=1000 + turn * 10,
                        target_tokens=1000 + turn * 10,
                        expected_reuse=turn * 1000,
                        cached_tokens=turn * 960,
                        output_tokens=8,
                        requested_tokens=8,
                        first_event_tokens=1,
                        chunks=8,
                        max_gap_ns=S // 80,
                        finish="length",
                        tiers=Tiers(compute=1000 + turn * 10 - turn * 960, external=turn * 960),
                        tier_source="isolated",
                    )
                )
                now = last + 2000
    line = {
        "mono_ns": 1,
        "worker": "w0",
        "loop_lag_us": {"p50": 100, "p99": 900, "max": 1500, "n": 200},
        "cpu_share": 0.2,
        "rss_bytes": 1,
        "gc_pause_us_max": 0,
        "sends_late": 0,
        "final": True,
    }
    (folder / "client-w0.jsonl").write_text(json.dumps(line) + "\n")
