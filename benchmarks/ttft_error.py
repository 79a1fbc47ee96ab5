"""TTFT error of the wire client against a server that stamps its sends, beside the floor client in the same run.

    python benchmarks/ttft_error.py [--streams 1,50,200,500] [--seconds 5] [--json]

TTFT 200 ms, one token every 33 ms, 60 tokens. `jittered`: every interval varies by 20 %, streams are independent.
`lock-step`: all streams tick on one 33 ms grid, as the steps of an inference engine do; the worst case for a client.
The error is first_token_ns minus the server's stamp of that very event. Coalesced first tokens are counted.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

import stamped
from rich.console import Console
from rich.table import Table

TIMING = {"ttft_us": 200_000, "itl_us": 33_000, "tokens": 60}
MODES: dict[str, dict[str, int]] = {"jittered": {"jitter_percent": 20}, "lock-step": {"step_us": 33_000}}
CLIENTS = {"wire": "client_wire.py", "floor": "client_floor.py"}


def measure(mode: str, streams: int, seconds: float) -> list[dict[str, Any]]:
    rows = []
    with stamped.server(**TIMING, **MODES[mode]) as port:
        for name, script in CLIENTS.items():
            stamped.stats(port)
            found = stamped.client(script, [port, streams, "--seconds", seconds])
            late = stamped.stats(port)["late_us"]
            rows.append({"mode": mode, "streams": streams, "client": name, "server_late_us": late, **found})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", default="1,50,200,500")
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [
        row for mode in MODES for n in args.streams.split(",") for row in measure(mode, int(n), args.seconds)
    ]
    if args.json:
        print(json.dumps({"machine": stamped.machine(), "rows": rows}, indent=1))
        return
    titles = "mode|streams|client|turns|TTFT error us p50|p99|max|coalesced|lag p99 us|chunks/s|us CPU/chunk|core %|run delay %|server late p99 us"
    table = Table(*titles.split("|"), title=f"TTFT error on loopback; {stamped.machine()}")
    for row in rows:
        error, wall = row["ttft_error_us"], row["wall_s"]
        cells = [
            row["mode"],
            row["streams"],
            row["client"],
            row["turns"],
            *(error[k] for k in ("p50", "p99", "max")),
            row["coalesced"],
        ]
        cells += [
            row["lag_us"]["p99"],
            row["chunks"] / wall,
            row["cpu_s"] / row["chunks"] * 1e6,
            row["cpu_s"] / wall * 100,
        ]
        cells += [row["run_delay_s"] / wall * 100, row["server_late_us"]["p99"]]
        table.add_row(*("-" if c is None else f"{c:.4g}" if isinstance(c, float) else str(c) for c in cells))
    Console(width=220).print(table)


if __name__ == "__main__":
    main()
