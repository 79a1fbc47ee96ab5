"""`client-<worker>.jsonl`: what the load generator's own processes were doing while they measured."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt

from loadgen.errors import InputError
from loadgen.report.columns import Ints

PATTERN = "client-*.jsonl"


class LoopLag(msgspec.Struct):
    """How late timers fired, in wall microseconds. `n` is their number."""

    p50: float = 0
    p99: float = 0
    max: float = 0
    n: int = 0


class ClientRow(msgspec.Struct, kw_only=True):
    mono_ns: int
    worker: str
    loop_lag_us: LoopLag = msgspec.field(default_factory=LoopLag)
    cpu_share: float = 0.0  # of one core
    rss_bytes: int = 0
    gc_pause_us_max: float = 0
    sends_late: int = 0
    final: bool = False


class Client:
    """The rows of all workers, in the order of each file."""

    def __init__(self, rows: dict[str, list[ClientRow]]) -> None:
        self.rows = rows

    @property
    def observed(self) -> bool:
        return any(self.rows.values())

    def without_final(self) -> list[str]:
        """Workers that wrote lines and no final one."""
        return sorted(worker for worker, rows in self.rows.items() if not any(row.final for row in rows))

    def loop_lag_us(self) -> LoopLag:
        """Over the run: the median interval's p50, the worst interval's p99 (with at least 20 timers), the maximum."""
        rows = [
            row.loop_lag_us
            for found in self.rows.values()
            for row in (_running(found) or found)
            if row.loop_lag_us.n
        ]
        if not rows:
            return LoopLag()
        medians = sorted(row.p50 for row in rows)
        return LoopLag(
            p50=medians[(len(medians) - 1) // 2],
            p99=max((row.p99 for row in rows if row.n >= 20), default=max(row.p99 for row in rows)),
            max=max(row.max for row in rows),
            n=sum(row.n for row in rows),
        )

    def lag_bound_ns(self, worker: str, mono_ns: Ints) -> npt.NDArray[np.float64]:
        """How late the loop can have been at these moments, [N] wall nanoseconds: infinite where it was not watched.

        A line tells the worst since the line before (or since the start, which is a weaker bound); a timer that was late
        across a line is told by the next one.
        """
        rows = self.rows.get(worker, [])
        if not rows:
            return np.full(mono_ns.shape, np.inf)
        stamps = np.asarray([row.mono_ns for row in rows])
        worst = np.asarray([row.loop_lag_us.max * 1000.0 for row in rows] + [0.0])
        place = np.searchsorted(stamps, mono_ns)
        bound = np.maximum(worst[place], worst[np.minimum(place + 1, len(rows))])
        return np.where(place < len(rows), bound, np.inf)

    def saturated(self, share: float) -> list[str]:
        """Workers that used more than `share` of a core in at least two lines and a tenth of all."""
        found = []
        for worker, rows in self.rows.items():
            high = sum(row.cpu_share > share for row in rows)
            if high >= 2 and high >= len(rows) / 10:
                found.append(worker)
        return sorted(found)


def _running(rows: list[ClientRow]) -> list[ClientRow]:
    """All but the last line, whose interval holds the cut of the open streams and the closing of the files: no turn that
    counts is timed there."""
    return [row for row in rows if not row.final]


def read_client(run_dir: Path) -> Client:
    """Read the client's lines. A half-written last line is passed over; a damaged one is an InputError."""
    decode = msgspec.json.Decoder(ClientRow).decode
    rows: dict[str, list[ClientRow]] = {}
    for path in sorted(run_dir.glob(PATTERN)):
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    row = decode(line)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    if not line.endswith(b"\n"):
                        break
                    raise InputError(
                        f"{path}, line {number}: not a client record ({error}); remove the line"
                    ) from None
                rows.setdefault(row.worker, []).append(row)
    return Client(rows)
