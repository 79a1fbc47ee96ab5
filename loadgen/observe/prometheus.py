"""The live figures as a Prometheus page. Times are endpoint seconds (a simulated endpoint's run in its time scale).

Buckets come from the run's histograms, 0.1 % wide, by adding: what Prometheus sums over its own buckets is exact at
their edges. Failed turns without a first token stand in `+Inf` only, so that a quantile over them is not flattered.
"""

from __future__ import annotations

from collections.abc import Iterator

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)

from loadgen.measure import metrics
from loadgen.measure.hist import Histogram
from loadgen.observe.live import CLASSES, TIERS, Live, within

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
EDGES_S = (
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1.0,
    2.0,
    4.0,
    6.0,
    8.0,
    10.0,
    15.0,
    20.0,
    30.0,
    45.0,
    60.0,
    120.0,
    300.0,
    600.0,
)
_TPOT_EDGES_S = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.25, 0.5, 1.0)
_HISTOGRAMS = {
    # metric: (name, help, edges)
    metrics.TTFT: ("loadgen_ttft_seconds", "First token minus first byte sent", EDGES_S),
    metrics.TTFT_INTENDED: (
        "loadgen_ttft_intended_seconds",
        "First token minus the start that the schedule wanted",
        EDGES_S,
    ),
    metrics.E2E: ("loadgen_turn_seconds", "End of the answer minus first byte sent", EDGES_S),
    metrics.TPOT: ("loadgen_tpot_seconds", "Time an output token after the first", _TPOT_EDGES_S),
}


class _Collector:
    def __init__(self, live: Live) -> None:
        self._live = live

    def collect(self) -> Iterator[Metric]:
        live, info = self._live, self._live.info
        yield InfoMetricFamily(
            "loadgen_run",
            "The run under way",
            {
                "run": info.run,
                "arm": info.arm,
                "model": info.endpoint.model,
                "endpoint": info.endpoint.url,
                "schedule": str(info.schedule.get("kind", "")),
                "simulated": info.endpoint.simulated or "",
            },
        )
        yield GaugeMetricFamily(
            "loadgen_time_scale", "Endpoint seconds in a wall second", info.endpoint.time_scale
        )
        yield GaugeMetricFamily(
            "loadgen_running", "1 while the run is under way", float(live.state == "running")
        )
        yield GaugeMetricFamily("loadgen_planned_turns", "Turns of the plan", info.plan.turns)
        yield GaugeMetricFamily("loadgen_turns_in_flight", "Turns under way", live.counts.get("in_flight", 0))
        yield GaugeMetricFamily(
            "loadgen_sessions_in_flight", "Sessions begun and not yet ended", live.sessions
        )
        for name, key, words in (
            ("loadgen_turns", "turns", "Turns that ended, well or badly"),
            ("loadgen_errors", "errors", "Turns that failed"),
            ("loadgen_output_tokens", "output_tokens", "Output tokens that the server reported"),
            ("loadgen_prompt_tokens", "prompt_tokens_known", "Prompt tokens of turns with a cached count"),
            ("loadgen_cached_tokens", "cached_tokens", "Cached tokens among them"),
        ):
            yield CounterMetricFamily(name, words, live.counts.get(key, 0))
        tiers = CounterMetricFamily(
            "loadgen_tier_tokens",
            "Prompt tokens of sourced turns by where their KV came from",
            labels=["tier"],
        )
        for tier in TIERS:
            tiers.add_metric([tier], live.counts.get(f"tier_{tier}", 0))
        yield tiers
        lag = GaugeMetricFamily(
            "loadgen_loop_lag_p99_seconds", "Lag of a worker's event loop, wall time", labels=["worker"]
        )
        up = GaugeMetricFamily("loadgen_worker_up", "0 when the worker was lost", labels=["worker"])
        for worker in live.workers:
            up.add_metric([worker.worker], float(not worker.lost))
            if worker.loop_lag_p99_s is not None:
                lag.add_metric([worker.worker], worker.loop_lag_p99_s)
        yield lag
        yield up
        for metric, (name, words, edges) in _HISTOGRAMS.items():
            family = HistogramMetricFamily(name, words, labels=["class"])
            for klass in CLASSES:
                histogram = live.histograms.get(metric, klass)
                if histogram.n:
                    family.add_metric([klass], _buckets(histogram, edges), sum_value=histogram.sum / 1e6)
            yield family


def _buckets(histogram: Histogram, edges_s: tuple[float, ...]) -> list[tuple[str, float]]:
    """(upper edge in seconds, cumulative count), the last one `+Inf` with the censored turns."""
    found = [(str(edge), float(within(histogram, edge))) for edge in edges_s]
    return [*found, ("+Inf", float(histogram.n))]


def page(live: Live | None) -> bytes:
    """The page as Prometheus reads it; without a run it says so by `loadgen_running 0`."""
    registry = CollectorRegistry(auto_describe=False)
    if live is None:
        return b"# HELP loadgen_running 1 while the run is under way\n# TYPE loadgen_running gauge\nloadgen_running 0.0\n"
    registry.register(_Collector(live))
    return generate_latest(registry)
