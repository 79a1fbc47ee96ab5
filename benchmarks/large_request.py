"""What a turn of 600 KB in 83 messages costs beyond a small one, and how long it holds up other streams.

python benchmarks/large_request.py [--turns 300] [--json]
"""

from __future__ import annotations

import argparse
import json

import stamped
from rich.console import Console
from rich.table import Table


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=300)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    with stamped.server(ttft_us=2000, itl_us=1000, tokens=1) as port:
        rows = {
            kind: stamped.client("client_large.py", [port, args.turns, kind])
            for kind in ("idle", "small", "large")
        }
    beyond = rows["large"]["cpu_ms"] - rows["small"]["cpu_ms"]
    if args.json:
        print(json.dumps({"machine": stamped.machine(), "beyond_small_ms": beyond, "rows": rows}, indent=1))
        return
    table = Table("turns", "CPU ms a turn", "others held up: p50 ms", "p99", "max", title=stamped.machine())
    for kind, row in rows.items():
        late = row["late_ms"]
        cpu = "-" if kind == "idle" else f"{row['cpu_ms']:.3f}"
        table.add_row(kind, cpu, *(f"{late[k]:.2f}" for k in ("p50", "p99", "max")))
    console = Console(width=160)
    console.print(table)
    console.print(f"a large turn costs {beyond:.3f} ms CPU beyond a small one")


if __name__ == "__main__":
    main()
