"""A report of a million turns: CPU time, memory and size. `python benchmarks/report_million.py [--turns N] [--keep DIR]`.

Writes a synthetic run (a closed schedule of 20,000 sessions), then runs `loadgen report` on it in a process of its own.
The reference, in the same run, is what any reader must pay: reading the same lines and decoding each with orjson.
Limits (issue 6): 15 s, 500 MB, 3 MB of HTML.
"""

from __future__ import annotations

import argparse
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import msgspec
import orjson

from loadgen.measure.run import Clock, Endpoint, Plan, RunInfo, write_run
from loadgen.measure.sample import Sample, Tiers, TurnClass

SECOND = 1_000_000_000


def write_samples(folder: Path, turns: int, sessions: int, seed: int = 1) -> None:
    """Samples of 200 live sessions; what a turn takes follows from its hits, with heavy-tailed noise."""
    generator = random.Random(seed)
    encode = msgspec.json.Encoder().encode
    each = turns // sessions
    lanes = [generator.randint(0, 10 * SECOND) for _ in range(200)]
    with (folder / "samples-w0.jsonl").open("wb", buffering=1 << 20) as file:
        for number in range(sessions):
            now = lanes[number % len(lanes)]
            prompt = generator.randint(10_000, 60_000)
            for turn in range(each):
                now += int(generator.expovariate(0.5) * SECOND) if turn else 0
                cached = prompt - 2_000 if turn and generator.random() < 0.9 else 0
                first = now + int(
                    (0.1 + (prompt - cached) * 1e-4) * generator.lognormvariate(0, 0.4) * SECOND
                )
                tokens = generator.randint(50, 400)
                last = first + int(tokens * 0.0145 * SECOND)
                file.write(
                    encode(
                        Sample(
                            run="million",
                            arm="offload",
                            rep=0,
                            session=f"session-{number:05d}",
                            turn=turn,
                            klass=TurnClass.REUSE if turn else TurnClass.FIRST,
                            worker="w0",
                            endpoint="http://127.0.0.1:8000",
                            request_id=f"{number}-{turn}",
                            intended_ns=now - 5_000,
                            send_ns=now,
                            sent_ns=now + 900_000,
                            headers_ns=now + 2_000_000,
                            first_byte_ns=first,
                            first_token_ns=first,
                            first_text_ns=first,
                            last_token_ns=last,
                            end_ns=last + 40_000,
                            clock="kernel",
                            lag_ns=12_000,
                            reused_conn=bool(turn),
                            prompt_tokens=prompt,
                            target_tokens=prompt,
                            expected_reuse=prompt - 2_000 if turn else 0,
                            cached_tokens=cached,
                            output_tokens=tokens,
                            requested_tokens=tokens,
                            first_event_tokens=1,
                            chunks=tokens,
                            max_gap_ns=30_000_000,
                            finish="length",
                            tiers=Tiers(
                                compute=prompt - cached, hbm=cached // 2, external=cached - cached // 2
                            ),
                            tier_source="response",
                        )
                    )
                    + b"\n"
                )
                now = last
                prompt += 2_000
            lanes[number % len(lanes)] = now
    (folder / "client-w0.jsonl").write_text(
        '{"mono_ns":0,"worker":"w0","loop_lag_us":{"p50":90,"p99":800,"max":2000,"n":9000},"cpu_share":0.4,"final":true}\n'
    )
    write_run(
        folder,
        RunInfo(
            run="million",
            arm="offload",
            created="2026-06-16T00:00:00Z",
            state="finished",
            endpoint=Endpoint(url="http://127.0.0.1:8000", model="synthetic"),
            plan=Plan(sessions=sessions, turns=each * sessions),
            clocks={"w0": Clock(mono_ns=0, wall_ns=1_750_000_000 * SECOND)},
            schedule={"kind": "closed", "live": 200},
        ),
    )


def reference(path: Path) -> float:
    """CPU seconds to read every line and decode it."""
    began = time.process_time()
    with path.open("rb", buffering=1 << 20) as file:
        for line in file:
            orjson.loads(line)
    return time.process_time() - began


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=1_000_000)
    parser.add_argument("--keep", type=Path, help="folder for the run, kept afterwards")
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or Path(temporary) / "run"
        folder.mkdir(parents=True, exist_ok=True)
        samples = folder / "samples-w0.jsonl"
        if not samples.exists():
            write_samples(folder, args.turns, max(1, args.turns // 50))
        plain = reference(samples)
        began = time.perf_counter()
        subprocess.run(
            [sys.executable, "-m", "loadgen", "report", str(folder)], check=True, stdout=subprocess.DEVNULL
        )
        wall = time.perf_counter() - began
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu = used.ru_utime + used.ru_stime
        html = (folder / "report.html").stat().st_size
        print(f"{args.turns:,} turns, {samples.stat().st_size / 1e6:,.0f} MB of samples")
        print(
            f"loadgen report: {wall:.1f} s wall, {cpu:.1f} s CPU ({cpu / plain:.1f} x decoding alone, {plain:.1f} s)"
        )
        print(f"peak memory {used.ru_maxrss / 1024:.0f} MiB, report.html {html / 1e6:.2f} MB")
        print(f"{platform.platform()}, {os.cpu_count()} CPUs, Python {platform.python_version()}")


if __name__ == "__main__":
    main()
