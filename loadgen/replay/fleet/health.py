"""Whether this load generator was the bottleneck: loop lag, CPU share, garbage collection, late sends.

Limits are not decided here; `report.validity` reads the lines of `client-<worker>.jsonl`.
"""

from __future__ import annotations

import gc
import resource
import time
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
import orjson

from loadgen.measure.hist import Histogram

_TICK_S = 0.02
_LINE_S = 2.0
LATE_SEND_NS = 20_000_000  # a turn that was free to go and left this much later


class Health:
    """Samples this process's event loop while a run is on and appends a line every two seconds; each line tells of the time
    since the one before."""

    def __init__(self, path: Path, worker: str) -> None:
        self._file = path.open("ab", buffering=0)
        self._worker = worker
        self._lag = Histogram()  # since the last line
        self._all_lag = Histogram()
        self.sends_late = 0
        self._gc_max_us = 0
        self._gc_began = 0
        self._wall = self._began = monotonic_ns()
        self._cpu = time.process_time_ns()
        gc.callbacks.append(self._on_gc)
        self._greenlet = gevent.spawn(self._watch)

    def sent(self, late_ns: int) -> None:
        """A turn left `late_ns` after it could have."""
        if late_ns > LATE_SEND_NS:
            self.sends_late += 1

    @property
    def lag_p99_us(self) -> int | None:
        return self._all_lag.percentile_us(0.99)

    def close(self) -> None:
        """Write the last line."""
        self._greenlet.kill(block=False)
        gc.callbacks.remove(self._on_gc)
        self._write(final=True)
        self._file.close()

    def _watch(self) -> None:
        next_line = monotonic_ns() + int(_LINE_S * 1e9)
        while True:
            due = monotonic_ns() + int(_TICK_S * 1e9)
            gevent.sleep(_TICK_S)
            now = monotonic_ns()
            late_us = max(0, (now - due) // 1000)
            self._lag.record(late_us)
            self._all_lag.record(late_us)
            if now >= next_line:
                self._write(final=False)
                next_line = now + int(_LINE_S * 1e9)

    def _on_gc(self, phase: str, _: dict[str, int]) -> None:
        if phase == "start":
            self._gc_began = monotonic_ns()
        else:
            self._gc_max_us = max(self._gc_max_us, (monotonic_ns() - self._gc_began) // 1000)

    def _write(self, *, final: bool) -> None:
        now, cpu = monotonic_ns(), time.process_time_ns()
        p50, p99 = self._lag.percentiles_us((0.5, 0.99))
        line: dict[str, Any] = {
            "mono_ns": now,
            "worker": self._worker,
            "loop_lag_us": {
                "p50": p50 or 0,
                "p99": p99 or 0,
                "max": self._lag.max or 0,
                "n": self._lag.count,
            },
            "cpu_share": round((cpu - self._cpu) / max(1, now - self._wall), 4),
            "rss_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "gc_pause_us_max": self._gc_max_us,
            "sends_late": self.sends_late,
            "final": final,
        }
        self._wall, self._cpu = now, cpu
        self._lag, self._gc_max_us = Histogram(), 0
        try:
            self._file.write(orjson.dumps(line) + b"\n")
        except OSError:
            pass  # a full disk is reported once, by the samples' journal
