"""Traces at size: import, hit curve, and a million turns; CPU time beside a plain JSON pass over the same bytes.

python benchmarks/trace_speed.py                   a synthetic set
python benchmarks/trace_speed.py --weka FOLDER     the kv-cache-tester traces (git clone callanjfox/kv-cache-tester)
"""

from __future__ import annotations

import argparse
import platform
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import orjson

from loadgen.trace.curve import curve
from loadgen.trace.exporting import export_trace
from loadgen.trace.importing import import_trace
from loadgen.trace.model import Gap, Header, Session, Turn
from loadgen.trace.reader import open_trace
from loadgen.trace.synthesis.parametric import synthesize
from loadgen.trace.synthesis.profile import load_profile
from loadgen.trace.timeline import Timeline
from loadgen.trace.tree import PrefixTree
from loadgen.trace.writer import TraceWriter


def clock(do: Callable[[], object]) -> tuple[float, float]:
    """CPU and wall seconds."""
    cpu, wall = time.process_time(), time.perf_counter()
    do()
    return time.process_time() - cpu, time.perf_counter() - wall


def plain(paths: list[Path]) -> None:
    for path in paths:
        for line in path.read_bytes().splitlines():
            orjson.loads(line)


def plain_lines(path: Path) -> None:
    with path.open("rb") as file:
        for line in file:
            orjson.loads(line)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--weka", type=Path, help="folder of kv-cache-tester traces")
    parser.add_argument("--million", type=Path, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.million:
        play(args.million)
        return
    print(
        f"{platform.machine()}, Python {platform.python_version()}, {platform.system()} {platform.release()}"
    )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = args.weka or synthetic(folder)
        files = [
            path for path in (source.rglob("*.json*") if source.is_dir() else [source]) if path.is_file()
        ]
        size = sum(path.stat().st_size for path in files)
        out = folder / "imported.jsonl.zst"
        cpu, wall = clock(lambda: import_trace([source], out, format_name="weka"))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        reference, _ = clock(lambda: plain(files))
        print(f"import: {size / 1e6:.0f} MB of JSON in {cpu:.1f} s CPU ({wall:.1f} s), {cpu / reference:.2f} × a plain JSON pass; "
              f"{out.stat().st_size / 1e6:.2f} MB out; peak {peak:.0f} MiB")  # fmt: skip
        with open_trace(out) as trace:
            tree, timeline = PrefixTree(trace), Timeline(trace, lanes=10)
            cpu, _ = clock(lambda: curve(tree, timeline))
            found = curve(tree, timeline)
        print(
            f"hit curve: {found.block_accesses / 1e6:.1f} million block accesses in {cpu:.1f} s CPU, {found.block_accesses / cpu / 1e6:.0f} million a second"
        )
        million(folder)


def synthetic(folder: Path) -> Path:
    trace = synthesize(load_profile("heavy"), folder / "s.jsonl", sessions=150)
    with open_trace(trace) as opened:
        export_trace(opened, "weka", folder / "weka.jsonl")
    return folder / "weka.jsonl"


def million(folder: Path) -> None:
    """Write a million turns, then open, check and play them in a process of their own."""
    path = folder / "million.jsonl"

    def write() -> None:
        with TraceWriter(path, Header(version=1, fidelity="messages")) as writer:
            for s in range(20_000):
                writer.session(Session(id=f"s{s}"))
                for i in range(50):
                    writer.turn(
                        Turn(session=f"s{s}", index=i, append=[{"role": "user", "content": f"question {s} {i} " * 5}],
                             answer={"role": "assistant", "content": "answer " * 10}, gap=Gap("tool", 0.5) if i else None,
                             input_tokens=100 + i, output_tokens=10)
                    )  # fmt: skip
                writer.end(f"s{s}")

    cpu, _ = clock(write)
    print(f"a million turns: written in {cpu:.1f} s CPU, {path.stat().st_size / 1e6:.0f} MB")
    subprocess.run([sys.executable, __file__, "--million", str(path)], check=True)


def play(path: Path) -> None:
    started = time.process_time()
    with open_trace(path) as trace:
        opened = time.process_time() - started
        turns = sum(len(trace.turns(session.id)) for session in trace.sessions)
        read = time.process_time() - started - opened
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    reference, _ = clock(lambda: plain_lines(path))
    print(
        f"  opened and checked in {opened:.1f} s CPU ({opened / reference:.1f} × a plain JSON pass), {turns:,} turns read again in {read:.1f} s; peak {peak:.0f} MiB"
    )


if __name__ == "__main__":
    main()
