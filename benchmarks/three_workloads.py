"""The same work for everybody: three workloads, the floor client, the wire alone, and `loadgen run` with everything on.

    python benchmarks/three_workloads.py [--workloads 50,200,140k] [--clients floor,wire,loadgen] [--json]

The server (`servers/stamped.c`) is on one CPU, the whole client on another. TTFT counts from the last byte sent, its
error is reported minus configured; what the server itself was late is part of it and printed beside it. `loadgen` is
Locust, samples, histograms, health and report; its CPU is that of all its processes between the first intended start
and the last turn's end, and what it spends before and after stands beside. `openai` is the same through
the openai SDK, which does not tell when the last byte was sent: its TTFT counts from the first.

More of them: `1000` has 1,000 streams; `1000x140k` has as many live sessions of 140K tokens, and `10x140k` ten of the
same kind, so that the difference of their own memory is that of 990 sessions.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import random
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import stamped
from rich.console import Console
from rich.table import Table
from whole import measured

from loadgen.trace.model import Header, Session, Turn
from loadgen.trace.writer import TraceWriter


class Workload(msgspec.Struct, frozen=True):
    streams: int
    turns: int
    tokens: int
    ttft_ms: int
    itl_ms: int
    prompts: int
    prompt_bytes: int

    @property
    def ideal_s(self) -> float:
        """Wall time if nothing but the server's timing counted."""
        rounds = -(-self.turns // self.streams)
        return rounds * (self.ttft_ms + (self.tokens - 1) * self.itl_ms) / 1e3


WORKLOADS = {
    "50": Workload(50, 500, 128, 100, 20, 500, 300),
    "200": Workload(200, 1000, 128, 100, 20, 1000, 300),
    "140k": Workload(10, 50, 64, 1000, 20, 50, 560_000),
    "1000": Workload(1000, 4000, 128, 100, 20, 1000, 300),
    "10x140k": Workload(10, 10, 64, 10_000, 20, 10, 560_000),
    "1000x140k": Workload(1000, 1000, 64, 10_000, 20, 50, 560_000),
}


def write_prompts(work: Workload, folder: Path) -> None:
    """Text that looks like code and differs from the first word on."""
    draw = random.Random(1)
    words = [
        f"{a}_{b}"
        for a in ("read", "node", "cache", "token", "index")
        for b in ("size", "list", "key", "map")
    ]
    text = " ".join(draw.choices(words, k=work.prompt_bytes // 8))
    for number in range(work.prompts):
        (folder / f"{number:04d}.txt").write_text(f"prompt {number} {text[: work.prompt_bytes]} end")


def write_trace(work: Workload, folder: Path) -> Path:
    """One session of one turn a prompt; the text stays in its file and is sent from the map."""
    path = folder / "trace.jsonl"
    with TraceWriter(
        path, Header(version=1, name="benchmark", fidelity="messages", tokenizer="tekken")
    ) as writer:
        for number, file in enumerate(sorted(folder.glob("*.txt"))):
            ref = writer.file_blob(file, hashlib.sha256(file.read_bytes()).hexdigest())
            session = f"s{number:04d}"
            writer.session(Session(id=session))
            append = [{"role": "user", "content": {"blob": ref}}]
            writer.turn(Turn(session=session, index=0, append=append, output_tokens=work.tokens))
            writer.end(session)
    return path


def simple(script: str, work: Workload, port: int, folder: Path) -> dict[str, Any]:
    found = stamped.client(script, [port, work.streams, "--turns", work.turns, "--prompts", folder])
    return found | {"error_ms": {k: v - work.ttft_ms for k, v in found["ttft_ms"].items()}}


def full(work: Workload, port: int, folder: Path, client: str) -> dict[str, Any]:
    arguments = ["--host", f"127.0.0.1:{port}", "--trace", write_trace(work, folder), "--schedule", "closed"]
    arguments += ["-u", work.streams, "--copies", work.turns // work.prompts, "--client", client]
    place = stamped.pinned(stamped.cpus()[1])
    return measured(arguments, folder, place=place, turns=work.turns, ttft_ms=work.ttft_ms)


def measure(name: str, clients: list[str]) -> list[dict[str, Any]]:
    work, rows = WORKLOADS[name], []
    for client in clients:
        with (
            tempfile.TemporaryDirectory() as made,
            stamped.server(
                ttft_us=work.ttft_ms * 1000, itl_us=work.itl_ms * 1000, tokens=work.tokens
            ) as port,
        ):
            folder = Path(made)
            write_prompts(work, folder)
            found = (
                full(work, port, folder, client)
                if client in ("loadgen", "openai")
                else simple(f"client_{client}.py", work, port, folder)
            )
            late = stamped.stats(port)["late_us"]
        rows.append({"workload": name, "client": client, "server_late_us": late, **found})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--workloads", default="50,200,140k")
    parser.add_argument("--clients", default="floor,wire,loadgen")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    rows = [row for name in args.workloads.split(",") for row in measure(name, args.clients.split(","))]
    if args.json:
        print(json.dumps({"machine": stamped.machine(), "rows": rows}, indent=1))
        return
    titles = "workload|client|turns|TTFT error ms p50|p90|p99|lag p99 ms|coalesced|load s (ideal)|us CPU/chunk|CPU ms/turn|CPU s beside|RSS MB|own MB|server late ms p50|p99"
    table = Table(*titles.split("|"), title=stamped.machine())
    for row in rows:
        error, late = row["error_ms"], row["server_late_us"]
        cells = [row["workload"], row["client"], row["turns"], *(error[k] for k in ("p50", "p90", "p99"))]
        cells += [
            row["lag_us"]["p99"] / 1e3,
            row["coalesced"],
            f"{row['wall_s']:.1f} ({WORKLOADS[row['workload']].ideal_s:.1f})",
        ]
        cells += [
            row["cpu_s"] / row["chunks"] * 1e6,
            row["cpu_s"] / row["turns"] * 1e3,
            row.get("beside_cpu_s"),
        ]
        cells += [round(row["rss_mb"]), row.get("own_mb"), late["p50"] / 1e3, late["p99"] / 1e3]
        table.add_row(*("-" if c is None else f"{c:.3g}" if isinstance(c, float) else str(c) for c in cells))
    Console(width=220).print(table)
    for row in rows:
        if row.get("incidents") or row.get("invalid"):
            print(f"{row['workload']}: loadgen reports {', '.join(row['incidents'] + row['invalid'])}")


if __name__ == "__main__":
    main()
