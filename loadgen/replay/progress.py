"""A line that lives while a run does. Quiet when nobody is watching."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import gevent
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from loadgen.measure import metrics

if TYPE_CHECKING:
    from loadgen.replay.fleet.master import Master

_EVERY_S = 0.5
_WORTH_SAYING_US = 20_000


class Progress:
    """Shows turns done, turns in flight and the TTFT of what was done so far."""

    def __init__(self, master: Master) -> None:
        self._master = master
        self._greenlet: gevent.Greenlet | None = None
        if sys.stderr and sys.stderr.isatty() and master.info is not None:
            self._bar = Bar(
                TextColumn("{task.description}"),
                BarColumn(),
                MofNCompleteColumn(),
                TextColumn("turns"),
                TimeElapsedColumn(),
                TextColumn("{task.fields[words]}"),
                console=Console(stderr=True),
                auto_refresh=False,  # rich's own thread would be a greenlet that draws in mid-read
                transient=True,
            )
            self._task = self._bar.add_task(master.info.arm, total=master.info.plan.turns, words="")
            self._bar.start()
            self._greenlet = gevent.spawn(self._watch)

    def close(self) -> None:
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None
            self._bar.stop()

    def _watch(self) -> None:
        while True:
            gevent.sleep(_EVERY_S)
            totals = self._master.totals()
            ttft = self._master.merged().get(metrics.TTFT)
            p50 = ttft.percentile_us(0.5)
            words = f"{totals.get('in_flight', 0)} in flight"
            if totals.get("errors"):
                words += f", {totals['errors']} errors"
            lag = max((s["lag_p99_us"] or 0 for s in self._master.latest.values()), default=0)
            if lag > _WORTH_SAYING_US:
                words += f", this client {lag / 1000:.0f} ms late"
            if p50 is not None:
                words += f", TTFT p50 {p50 / 1e6:.2f} s"
            self._bar.update(self._task, completed=totals.get("turns", 0), words=words)
            self._bar.refresh()
