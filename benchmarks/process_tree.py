"""CPU time and memory of a process and all that it starts, sampled from outside on the machine's monotonic clock."""

from __future__ import annotations

import threading
import time
from pathlib import Path


def _tree(pid: int) -> list[int]:
    found = [pid]
    for task in Path(f"/proc/{pid}/task").glob("*"):
        try:
            children = (task / "children").read_text().split()
        except OSError:
            continue
        for child in children:
            found += _tree(int(child))
    return found


def _cpu_s(pid: int) -> float:
    """CPU time of the process by the scheduler's own count, in nanoseconds."""
    return (
        sum(int(task.read_text().split()[0]) for task in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e9
    )


def _memory_mb(pid: int) -> tuple[float, float]:
    """Resident memory: all of it, and what is the process's own (no files, mapped contexts among them)."""
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
    )
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["RssAnon"].split()[0]) / 1024


class Watch:
    """Samples a tree every 50 ms until it is gone. `cpu_s(a, b)` is its CPU time between two monotonic instants (ns)."""

    def __init__(self, pid: int) -> None:
        self.samples: list[tuple[int, float]] = []
        self.rss_mb = self.own_mb = 0.0  # peaks
        self._ended: dict[int, float] = {}  # the last count of each process: one that ended keeps it
        self._pid = pid
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def cpu_s(self, begin_ns: int, end_ns: int) -> float:
        return self._at(end_ns) - self._at(begin_ns)

    @property
    def total_s(self) -> float:
        return self.samples[-1][1]

    def _at(self, when_ns: int) -> float:
        """CPU time so far at one instant, between samples in proportion."""
        before = max((s for s in self.samples if s[0] <= when_ns), default=self.samples[0])
        after = min((s for s in self.samples if s[0] >= when_ns), default=self.samples[-1])
        if after[0] <= before[0]:
            return before[1]
        return before[1] + (after[1] - before[1]) * (when_ns - before[0]) / (after[0] - before[0])

    def _run(self) -> None:
        while Path(f"/proc/{self._pid}").exists():
            rss = own = 0.0
            for pid in _tree(self._pid):
                try:
                    self._ended[pid] = _cpu_s(pid)
                    memory = _memory_mb(pid)
                except (OSError, IndexError, KeyError):
                    continue
                rss, own = rss + memory[0], own + memory[1]
            self.rss_mb, self.own_mb = max(self.rss_mb, rss), max(self.own_mb, own)
            self.samples.append((time.monotonic_ns(), sum(self._ended.values())))
            time.sleep(0.05)
