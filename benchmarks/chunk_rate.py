"""Chunks a second on one core: the wire client and the floor client, alternating, at rising rates.

    python benchmarks/chunk_rate.py [--loads 200x20000,1000x20000,1000x18000] [--repeat 1] [--json]

A load is STREAMSxMICROSECONDS between two tokens of a stream; TTFT 100 ms, 200 tokens, intervals varied by 20 %.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import stamped
from rich.console import Console
from rich.table import Table


def measure(load: str, client: str) -> dict[str, Any]:
    streams, itl_us = map(int, load.split("x"))
    with stamped.server(ttft_us=100_000, itl_us=itl_us, tokens=200, jitter_percent=20) as port:
        found = stamped.client(f"client_{client}.py", [port, streams, "--seconds", 6])
        late = stamped.stats(port)["late_us"]
    return {"load": load, "client": client, "server_late_us": late, **found}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", default="200x20000,1000x20000,1000x18000")
    parser.add_argument("--repeat", type=int, default=1)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    plan = [
        (load, client)
        for load in args.loads.split(",")
        for _ in range(args.repeat)
        for client in ("wire", "floor")
    ]
    rows = [measure(load, client) for load, client in plan]
    if args.json:
        print(json.dumps({"machine": stamped.machine(), "rows": rows}, indent=1))
        return
    titles = "load|client|chunks/s|us CPU/chunk|core %|run delay %|TTFT error us p50|p99|max|coalesced|lag p99 us|server late p99 us"
    table = Table(*titles.split("|"), title=stamped.machine())
    for row in rows:
        wall, error = row["wall_s"], row["ttft_error_us"]
        cells = [row["load"], row["client"], row["chunks"] / wall, row["cpu_s"] / row["chunks"] * 1e6]
        cells += [
            row["cpu_s"] / wall * 100,
            row["run_delay_s"] / wall * 100,
            *(error[k] for k in ("p50", "p99", "max")),
        ]
        cells += [row["coalesced"], row["lag_us"]["p99"], row["server_late_us"]["p99"]]
        table.add_row(*("-" if c is None else f"{c:.5g}" if isinstance(c, float) else str(c) for c in cells))
    Console(width=180).print(table)


if __name__ == "__main__":
    main()
