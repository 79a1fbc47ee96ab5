"""Simulated turns a second of the what-if, in CPU time of one core, beside a plain LRU over single blocks in the same run.

    python benchmarks/sim_whatif.py [--turns 50] [--sessions 10,50,200,1000] [--fleet]

The trace: sessions whose first prompt has 20,000 tokens, then 600 new tokens a turn, 200 out, gaps of 5 s. The
reference is what the engine's prefix cache would cost block by block: an OrderedDict that is hit and filled with
the same turns. `--fleet` plays 10,000 sessions of 20 turns.
"""

from __future__ import annotations

import argparse
import os
import platform
import tempfile
import time
from collections import OrderedDict
from pathlib import Path

from loadgen.sim import profile as profiles
from loadgen.sim.whatif import WhatIf
from loadgen.sim.workload import Workload
from loadgen.trace.model import Blocks, Gap, Header, Session, Turn
from loadgen.trace.reader import open_trace
from loadgen.trace.writer import TraceWriter

FIRST, NEW, OUT, BLOCK = 20_000, 600, 200, 64


def make(folder: Path, sessions: int, turns: int) -> Workload:
    path = folder / "agents.jsonl"
    with TraceWriter(path, Header(version=1, name="agents", fidelity="blocks", block_size=BLOCK)) as writer:
        for number in range(sessions):
            whole = 0
            writer.session(Session(id=f"s{number}"))
            for index in range(turns):
                total = whole + (NEW if index else FIRST)
                blocks = Blocks(
                    reuse=whole // BLOCK, new=total // BLOCK - whole // BLOCK, tail_tokens=total % BLOCK
                )
                gap = Gap("tool", 5.0) if index else None
                writer.turn(
                    Turn(session=f"s{number}", index=index, blocks=blocks, output_tokens=OUT, gap=gap)
                )
                whole = total + OUT
            writer.end(f"s{number}")
    with open_trace(path) as trace:
        return Workload(trace)


def block_by_block(turns: int, capacity: int, seconds: float = 3.0) -> float:
    """Turns a second of an LRU of 16-token blocks, one dict entry a block."""
    pool: OrderedDict[tuple[int, int], None] = OrderedDict()
    done = 0
    begin = time.process_time()
    while time.process_time() - begin < seconds:
        for turn in range(turns):
            for session in range(10):
                blocks = (FIRST + turn * (NEW + OUT)) // 16
                keys = [(session, block) for block in range(blocks)]
                for key in reversed(keys):
                    pool[key] = None
                    pool.move_to_end(key)
                while len(pool) > capacity:
                    pool.popitem(last=False)
                done += 1
            if time.process_time() - begin > seconds:
                break
    return done / (time.process_time() - begin)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=50)
    parser.add_argument("--sessions", default="10,50,200,1000")
    parser.add_argument("--fleet", action="store_true")
    args = parser.parse_args()
    blog = profiles.load("blog")
    print(
        f"{platform.platform()}, Python {platform.python_version()}, load {os.getloadavg()[0]:.1f}; one core, CPU time"
    )
    with tempfile.TemporaryDirectory() as folder:
        reference = block_by_block(args.turns, blog.arm("off").pool_tokens // 16)
        print(f"block by block, cache alone: {reference:,.0f} turns/s")
        rows = [(100, args.turns, int(count)) for count in args.sessions.split(",")]
        if args.fleet:
            rows.append((1_000, 20, 10_000))
        for sessions, turns, live in rows:
            workload = make(Path(folder), sessions, turns)
            for arm in ("off", "offload"):
                begin = time.process_time()
                outcome = WhatIf(blog, arm, workload, sessions=live).run()
                spent = time.process_time() - begin
                rate = len(outcome.ttft_s) / spent
                print(
                    f"{arm:8} {live:6,} live sessions, {len(outcome.ttft_s):8,} turns: {rate:9,.0f} turns/s, {rate / reference:5.1f} x block by block, {spent:.1f} s"
                )


if __name__ == "__main__":
    main()
