"""What all clients that are compared have in common: the load they make and the bookkeeping of what it cost."""

from __future__ import annotations

import argparse
import gc
import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class Load:
    """`streams` connections send one request after another: `turns` in all, or for `seconds` after `warm` ones."""

    def __init__(self) -> None:
        parser = argparse.ArgumentParser()
        parser.add_argument("port", type=int)
        parser.add_argument("streams", type=int)
        parser.add_argument("--turns", type=int)
        parser.add_argument("--seconds", type=float, default=5.0)
        parser.add_argument("--warm", type=float, default=2.5)
        parser.add_argument(
            "--prompts", type=Path, help="folder of text files; default: one prompt of 200 bytes"
        )
        args = parser.parse_args()
        self.port: int = args.port
        self.streams: int = args.streams
        self.prompts = (
            [p.read_bytes() for p in sorted(args.prompts.glob("*.txt"))] if args.prompts else [b"x" * 200]
        )
        self._turns, self._seconds, self._warm = args.turns, args.seconds, args.warm
        self.begun = 0  # turns so far

    def start(self) -> None:
        """All is set up; the clock runs from here."""
        now = time.monotonic_ns()
        self.started_ns = now
        self.measured_from_ns = now if self._turns else now + int(self._warm * 1e9)
        self._until_ns = None if self._turns else self.measured_from_ns + int(self._seconds * 1e9)

    def next_prompt(self) -> int | None:
        """Number of the prompt of the next turn; None when there is none."""
        if self.begun == self._turns if self._until_ns is None else time.monotonic_ns() >= self._until_ns:
            return None
        self.begun += 1
        return (self.begun - 1) % len(self.prompts)


class Account:
    """CPU, wall and run-queue time of this process from `begin` to `end`, and the garbage collector's longest pause."""

    def begin(self) -> None:
        gc.collect()
        gc.freeze()
        self._pause_ms, self._collecting_ns = 0.0, 0
        gc.callbacks.append(self._on_gc)
        self._cpu, self._wall, self._delay = time.process_time(), time.monotonic(), _run_delay_s()

    def end(self) -> dict[str, float]:
        return {
            "cpu_s": time.process_time() - self._cpu,
            "wall_s": time.monotonic() - self._wall,
            "run_delay_s": _run_delay_s() - self._delay,
            "gc_pause_ms": self._pause_ms,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }

    def _on_gc(self, phase: str, _: object) -> None:
        now = time.monotonic_ns()
        if phase == "start":
            self._collecting_ns = now
        else:
            self._pause_ms = max(self._pause_ms, (now - self._collecting_ns) / 1e6)


def _run_delay_s() -> float:
    """Time this process was ready to run and did not get a CPU."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


def ranks(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p90, p99 by rank ceil(q n), and the maximum."""
    ordered = sorted(values)
    if not ordered:
        return {"p50": None, "p90": None, "p99": None, "max": None}
    found = {f"p{q}": ordered[max(0, -(-q * len(ordered) // 100) - 1)] for q in (50, 90, 99)}
    return found | {"max": ordered[-1]}


def report(**found: Any) -> None:
    print(json.dumps(found))
