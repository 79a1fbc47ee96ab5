"""What a run shows while it goes on, from the snapshots that workers report: figures for the web tab and the exporter.

Everything is cumulative and approximate in time: a worker reports every few seconds. The report is made from samples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

import numpy as np

from loadgen.measure import metrics
from loadgen.measure.hist import HIGHEST_US, Histogram, HistogramSet, bucket_index
from loadgen.measure.run import RunInfo
from loadgen.report.figures import NEEDED, QUANTILES

TIERS = ("compute", "hbm", "external", "unknown")
CLASSES = ("first", "reuse", "rebuilt", "retry")


@dataclass(frozen=True)
class WorkerHealth:
    """One load-generator process; `lost` when the master no longer hears of it."""

    worker: str
    in_flight: int
    loop_lag_p99_s: float | None
    lost: bool


@dataclass(frozen=True)
class Live:
    """One moment of a run. Histograms are in endpoint microseconds, tokens are counts so far."""

    info: RunInfo
    histograms: HistogramSet
    counts: Mapping[str, int]
    workers: tuple[WorkerHealth, ...] = ()
    sessions: int = 0  # begun and not yet ended
    state: str = "running"  # as it was when the figures were added up; the run's own changes
    made_ns: int = field(default_factory=monotonic_ns)

    @classmethod
    def of(
        cls,
        info: RunInfo,
        snapshots: Mapping[str, Mapping[str, Any]],
        lost: Iterable[str] = (),
        sessions: int = 0,
    ) -> Live:
        """From the newest snapshot of each worker, keyed by worker id."""
        histograms, counts, gone = HistogramSet(), dict[str, int](), set(lost)
        workers = []
        for ident, snapshot in sorted(snapshots.items(), key=lambda item: str(item[1]["worker"])):
            histograms.merge(snapshot["histograms"])
            for name, value in snapshot["counts"].items():
                counts[name] = counts.get(name, 0) + value
            lag = snapshot.get("lag_p99_us")
            workers.append(
                WorkerHealth(
                    worker=str(snapshot["worker"]),
                    in_flight=snapshot["counts"].get("in_flight", 0),
                    loop_lag_p99_s=None if lag is None else lag / 1e6,
                    lost=ident in gone,
                )
            )
        return cls(info, histograms, counts, tuple(workers), sessions, info.state)

    def ttft(self) -> dict[str, Histogram]:
        """TTFT by class of turn, classes that occurred only, then all of them together."""
        found = {name: self.histograms.get(metrics.TTFT, name) for name in CLASSES}
        present = {name: histogram for name, histogram in found.items() if histogram.n}
        return {**present, "all": self.histograms.get(metrics.TTFT)} if present else {}

    def tiers(self) -> dict[str, float] | None:
        """Shares of the prompt tokens of sourced turns by tier; None before the first such turn."""
        tokens = {tier: self.counts.get(f"tier_{tier}", 0) for tier in TIERS}
        total = sum(tokens.values())
        return {tier: value / total for tier, value in tokens.items()} if total else None

    def cached_share(self) -> float | None:
        """Cached tokens of all prompt tokens, as the server reported them; None where it reported none."""
        asked = self.counts.get("prompt_tokens_known", 0)
        return self.counts.get("cached_tokens", 0) / asked if asked else None


def within(histogram: Histogram, limit_s: float) -> int:
    """How many turns had the event within so many seconds; the edge is a bucket's, 0.1 % wide."""
    edge = bucket_index(np.array([min(int(limit_s * 1e6), HIGHEST_US)], dtype=np.int64))[0]
    return int(histogram.counts[: edge + 1].sum())


def percentiles_s(histogram: Histogram) -> dict[str, float | str | None]:
    """p50 to p99 in seconds; `n<59` where there are too few turns for it, None where it falls among failed ones."""
    values = histogram.percentiles_us(tuple(QUANTILES.values()))
    return {
        name: f"n<{NEEDED[name]}" if histogram.n < NEEDED[name] else None if us is None else us / 1e6
        for name, us in zip(QUANTILES, values, strict=True)
    }


def as_json(live: Live) -> dict[str, Any]:
    """What the page polls: seconds, shares and counts."""
    info = live.info
    return {
        "run": info.run,
        "arm": info.arm,
        "state": live.state,
        "model": info.endpoint.model,
        "endpoint": info.endpoint.url,
        "simulated": info.endpoint.simulated,
        "time_scale": info.endpoint.time_scale,
        "schedule": info.schedule.get("kind"),
        "turns": {
            "done": live.counts.get("turns", 0),
            "planned": info.plan.turns,
            "errors": live.counts.get("errors", 0),
        },
        "in_flight": {"sessions": live.sessions, "turns": live.counts.get("in_flight", 0)},
        "ttft_s": {
            name: {
                "turns": histogram.n,
                "without_first_token": histogram.censored,
                **percentiles_s(histogram),
                "max": None if histogram.max is None else histogram.max / 1e6,
            }
            for name, histogram in live.ttft().items()
        },
        "tiers": live.tiers(),
        "cached_share": live.cached_share(),
        "workers": [
            {"worker": w.worker, "in_flight": w.in_flight, "loop_lag_p99_s": w.loop_lag_p99_s, "lost": w.lost}
            for w in live.workers
        ],
    }


def rows(live: Live | None) -> list[dict[str, str]]:
    """A table with a column a class of turns, for Locust's own tab."""
    if live is None:
        return [{"figure": "no run yet", "first": "", "reuse": "", "all": ""}]
    found = as_json(live)
    times = found["ttft_s"]

    def row(figure: str, show: Callable[[dict[str, Any]], str]) -> dict[str, str]:
        return {
            "figure": figure,
            **{name: show(times[name]) if name in times else "–" for name in ("first", "reuse", "all")},
        }

    def whole(figure: str, value: str) -> dict[str, str]:
        return {"figure": figure, "first": "", "reuse": "", "all": value}

    table = [row(f"TTFT {name}", lambda of, name=name: _seconds(of[name])) for name in (*QUANTILES, "max")]  # type: ignore[misc]
    table.append(row("turns", lambda of: str(of["turns"])))
    table.append(row("turns without a first token", lambda of: str(of["without_first_token"])))
    table.append(whole("cached share of prompt tokens", _share(found["cached_share"])))
    for tier, share in (found["tiers"] or {}).items():
        table.append(
            whole(
                f"prompt tokens from {tier}" if tier != "compute" else "prompt tokens computed", _share(share)
            )
        )
    table.append(whole("sessions in flight", str(live.sessions)))
    lags = [w.loop_lag_p99_s for w in live.workers if w.loop_lag_p99_s is not None]
    table.append(whole("loop lag p99, worst worker", f"{max(lags) * 1000:.1f} ms" if lags else "–"))
    table.append(whole("workers lost", str(sum(w.lost for w in live.workers))))
    return table


def _seconds(value: float | str | None) -> str:
    return value if isinstance(value, str) else "–" if value is None else f"{value:.3f} s"


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"
