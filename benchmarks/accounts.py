"""What a client process cost and what it saw: the same bookkeeping for every client that is compared."""

from __future__ import annotations

import json
import resource
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def ranks(values: Sequence[float]) -> dict[str, float | None]:
    """p50, p90, p99 by rank ceil(q n), and the maximum."""
    ordered = sorted(values)
    if not ordered:
        return {"p50": None, "p90": None, "p99": None, "max": None}
    found = {f"p{q}": ordered[max(0, -(-q * len(ordered) // 100) - 1)] for q in (50, 90, 99)}
    return found | {"max": ordered[-1]}


def run_delay_s() -> float:
    """Time this process was ready to run and did not get a CPU."""
    return int(Path("/proc/self/schedstat").read_text().split()[1]) / 1e9


class Account:
    """CPU, wall and run-queue time of a process between `begin` and `end`."""

    def begin(self) -> None:
        self._cpu, self._wall, self._delay = time.process_time(), time.monotonic(), run_delay_s()

    def end(self) -> dict[str, float]:
        return {
            "cpu_s": time.process_time() - self._cpu,
            "wall_s": time.monotonic() - self._wall,
            "run_delay_s": run_delay_s() - self._delay,
            "rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        }


def report(**found: Any) -> None:
    print(json.dumps(found))
