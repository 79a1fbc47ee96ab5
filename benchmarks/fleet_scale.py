"""How the load generator grows with Locust workers: streams, chunks a second and TTFT error, the same load for each worker.

    python benchmarks/fleet_scale.py [--workers 1,2,4,8] [--streams 200] [--servers N] [--json]
    python benchmarks/fleet_scale.py --endpoint sim [--tokenizer hf:PATH]

`stamped`: servers of `servers/stamped.c`, TTFT 200 ms and one token every 20 ms, `--streams` live sessions for each
worker, so that twice the workers make twice the load. The error is TTFT from the last byte sent minus 200 ms; what
the servers themselves were late is part of it and printed beside it.
`sim`: as many simulated endpoints (`loadgen sim`, arm off) under the load of the most workers, whatever their number:
their TTFT is an outcome, so the column shows TTFT itself, and what changes from row to row is the client's share.

Servers have a CPU each, the first ones (by default a quarter of all); loadgen has all the others. Give it a machine with CPUs for every process
(servers + workers + 1); with fewer the figures show the scheduler. Sessions are spread over servers by their hash.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import stamped
from rich.console import Console
from rich.table import Table
from sim_delivery import bound, lateness
from three_workloads import Workload, write_prompts, write_trace
from whole import measured

TTFT_MS, ITL_MS, TOKENS, ROUNDS = 200, 20, 256, 3
STAGGER_S = 2.0  # over which the first sessions start, so that streams are independent


@contextlib.contextmanager
def stamped_servers(cpus: list[int]) -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        ports = [
            stack.enter_context(
                stamped.server(ttft_us=TTFT_MS * 1000, itl_us=ITL_MS * 1000, tokens=TOKENS, cpu=cpu)
            )
            for cpu in cpus
        ]
        yield [f"http://127.0.0.1:{port}" for port in ports]


@contextlib.contextmanager
def simulated(cpus: list[int], tokenizer: str | None) -> Iterator[list[str]]:
    command = [sys.executable, "-m", "loadgen", "sim", "--port", "0", "--json", "--arm", "off"]
    command += ["--tokenizer", tokenizer] if tokenizer else []
    started = [
        subprocess.Popen([*stamped.pinned(cpu), *command], stdout=subprocess.PIPE, text=True) for cpu in cpus
    ]
    try:
        yield [json.loads(process.stdout.readline())["url"] for process in started if process.stdout]
    finally:
        for process in started:
            process.terminate()
            process.wait()


def measure(args: argparse.Namespace, workers: int) -> dict[str, Any]:
    allowed = sorted(os.sched_getaffinity(0))
    own, rest = allowed[: args.servers], allowed[args.servers :] or allowed
    simulate = args.endpoint == "sim"
    streams = args.streams * (max(args.workers) if simulate else workers)
    work = Workload(streams, streams * ROUNDS, TOKENS, 0 if simulate else TTFT_MS, ITL_MS, streams, 300)
    servers = simulated(own, args.tokenizer) if simulate else stamped_servers(own)
    with tempfile.TemporaryDirectory() as made, servers as urls:
        folder = Path(made)
        write_prompts(work, folder)
        arguments = ["--host", urls[0], "--trace", write_trace(work, folder), "--schedule", "closed"]
        arguments += ["-u", streams, "--copies", ROUNDS, "--stagger", STAGGER_S / streams]
        arguments += ["--processes", workers] if workers > 1 else []
        arguments += ["--tokenizer", args.tokenizer] if args.tokenizer else []
        arguments += [part for url in urls[1:] for part in ("--endpoint", url)]
        place = ["taskset", "-c", ",".join(map(str, rest))]
        found = measured(arguments, folder, place=place, turns=work.turns, ttft_ms=work.ttft_ms)
        if simulate:
            late_ms = max(bound(lateness(url), 0.99) for url in urls) * 1e3
        else:
            late_ms = max(stamped.stats(int(url.rpartition(":")[2]))["late_us"]["p99"] for url in urls) / 1e3
    return {
        "endpoint": args.endpoint,
        "workers": workers,
        "streams": streams,
        "chunks_s": found["chunks"] / found["wall_s"],
        "server_late_p99_ms": late_ms,
        **found,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--endpoint", choices=("stamped", "sim"), default="stamped")
    cpus = len(os.sched_getaffinity(0))
    servers = max(1, cpus // 4)
    fitting = [n for n in (1, 2, 4, 8) if n <= max(1, cpus - servers)]
    parser.add_argument("--workers", type=lambda text: [int(n) for n in text.split(",")], default=fitting)
    parser.add_argument("--streams", type=int, default=200, help="live sessions a worker")
    parser.add_argument("--servers", type=int, default=servers)
    parser.add_argument("--tokenizer", help="of the simulated endpoint (default: tekken)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = []
    for workers in args.workers:
        rows.append(measure(args, workers))
        if args.json:  # a run that is cut keeps what it has
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    if args.json:
        print(json.dumps({"machine": stamped.machine(), "rows": rows}, indent=1))
        return
    what = "TTFT" if args.endpoint == "sim" else "TTFT error"
    titles = f"endpoint|workers|streams|turns|chunks/s|{what} ms p50|p90|p99|max|coalesced|lag p99 ms|us CPU/chunk|server late p99 ms|wall s"
    table = Table(*titles.split("|"), title=stamped.machine())
    for row in rows:
        error = row["error_ms"]
        cells = [row["endpoint"], row["workers"], row["streams"], row["turns"], round(row["chunks_s"])]
        cells += [
            *(error[k] for k in ("p50", "p90", "p99", "max")),
            row["coalesced"],
            row["lag_us"]["p99"] / 1e3,
        ]
        cells += [row["cpu_s"] / row["chunks"] * 1e6, row["server_late_p99_ms"], row["wall_s"]]
        table.add_row(*(f"{c:.3g}" if isinstance(c, float) else str(c) for c in cells))
    Console(width=220).print(table)
    for row in rows:
        if row["incidents"] or row["invalid"]:
            print(f"{row['workers']} workers: loadgen reports {', '.join(row['incidents'] + row['invalid'])}")


if __name__ == "__main__":
    main()
