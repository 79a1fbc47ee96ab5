"""Live figures from workers' snapshots, their table, and the Prometheus page."""

from __future__ import annotations

import json
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from loadgen.measure import metrics
from loadgen.measure.hist import HistogramSet
from loadgen.measure.run import Endpoint, Plan, RunInfo
from loadgen.observe.live import Live, as_json, percentiles_s, rows, within
from loadgen.observe.prometheus import EDGES_S, page

INFO = RunInfo(
    run="r1",
    arm='off"<b>',
    created="2026-06-01T00:00:00Z",
    endpoint=Endpoint(url="http://127.0.0.1:1", model="m", simulated="blog/off", time_scale=20.0),
    plan=Plan(sessions=2, turns=100),
    schedule={"kind": "sweep"},
)


def snapshot(worker: str, ttft_ms: dict[str, list[int]], lost: int = 0, **counts: int) -> dict[str, Any]:
    """What a worker sends; `lost` reuse turns ended without a first token."""
    histograms = HistogramSet()
    for klass, values in ttft_ms.items():
        for value in values:
            histograms.record(metrics.TTFT, klass, value * 1000)
    histograms.censor(metrics.TTFT, "reuse", lost)
    return {
        "worker": worker,
        "histograms": histograms.snapshot(),
        "counts": {"turns": sum(map(len, ttft_ms.values())) + lost, "errors": lost, "in_flight": 1, **counts},
        "lag_p99_us": 1500,
    }


def test_workers_add_up_and_percentiles_are_those_of_all_turns_together() -> None:
    live = Live.of(
        INFO,
        {
            "b": snapshot("w1", {"reuse": list(range(21, 41))}),
            "a": snapshot("w0", {"first": [9000, 9100], "reuse": list(range(1, 21))}),
        },
        lost={"b"},
        sessions=2,
    )
    found = as_json(live)
    assert found["turns"] == {"done": 42, "planned": 100, "errors": 0}
    assert found["in_flight"] == {"sessions": 2, "turns": 2}
    assert found["ttft_s"]["reuse"]["turns"] == 40
    assert found["ttft_s"]["reuse"]["p50"] == pytest.approx(0.020, rel=1e-3)  # rank 20 of 1 … 40 ms
    assert found["ttft_s"]["reuse"]["p90"] == pytest.approx(0.036, rel=1e-3)
    assert found["ttft_s"]["first"]["p50"] == "n<5"
    assert found["ttft_s"]["all"]["max"] == pytest.approx(9.1)
    assert [(w["worker"], w["lost"]) for w in found["workers"]] == [("w0", False), ("w1", True)]
    json.dumps(found)


def test_a_percentile_among_failed_turns_is_no_number() -> None:
    live = Live.of(INFO, {"a": snapshot("w0", {"reuse": [10] * 30}, lost=10)})
    found = percentiles_s(live.histograms.get(metrics.TTFT, "reuse"))
    assert found == {"p50": pytest.approx(0.01, rel=1e-3), "p90": None, "p95": "n<59", "p99": "n<299"}
    assert as_json(live)["ttft_s"]["reuse"]["without_first_token"] == 10


def test_shares_are_absent_until_something_is_known() -> None:
    silent = Live.of(INFO, {"a": snapshot("w0", {"reuse": [1]}, cached_tokens=5)})
    assert (silent.tiers(), silent.cached_share()) == (None, None)
    telling = Live.of(
        INFO,
        {
            "a": snapshot(
                "w0", {"reuse": [1]}, prompt_tokens_known=80, cached_tokens=60, tier_hbm=25, tier_external=75
            )
        },
    )
    assert telling.tiers() == {"compute": 0.0, "hbm": 0.25, "external": 0.75, "unknown": 0.0}
    assert telling.cached_share() == 0.75


def test_the_table_of_the_tab_has_the_same_columns_in_every_row() -> None:
    live = Live.of(INFO, {"a": snapshot("w0", {"first": [900] * 6, "reuse": [50] * 6}, tier_hbm=1)})
    table = rows(live)
    assert {tuple(row) for row in table} == {("figure", "first", "reuse", "all")}
    by_name = {row["figure"]: row for row in table}
    assert by_name["TTFT p50"]["first"] == "0.900 s"
    assert by_name["TTFT p90"]["reuse"] == "n<29"
    assert by_name["prompt tokens from hbm"]["all"] == "100.0%"
    assert by_name["loop lag p99, worst worker"]["all"] == "1.5 ms"
    assert rows(None)[0]["figure"] == "no run yet"
    assert [row["all"] for row in rows(Live.of(INFO, {})) if row["figure"] == "TTFT p50"] == ["–"]


def test_the_metrics_page_parses_and_agrees_with_the_histograms() -> None:
    live = Live.of(INFO, {"a": snapshot("w0", {"first": [5500, 7000], "reuse": [80, 300, 301]}, lost=2)})
    families = {family.name: family for family in text_string_to_metric_families(page(live).decode())}
    (info,) = families["loadgen_run_info"].samples
    assert info.labels["arm"] == 'off"<b>'
    buckets = {
        (sample.labels["class"], sample.labels["le"]): sample.value
        for sample in families["loadgen_ttft_seconds"].samples
        if sample.name.endswith("_bucket")
    }
    assert buckets["reuse", "0.1"] == 1
    assert buckets["reuse", "0.5"] == 3
    assert buckets["reuse", str(EDGES_S[-1])] == 3
    assert buckets["reuse", "+Inf"] == 5, "turns without a first token stand in +Inf only"
    assert buckets["first", "6.0"] == 1
    sums = {
        s.labels["class"]: s.value
        for s in families["loadgen_ttft_seconds"].samples
        if s.name.endswith("_sum")
    }
    assert sums["first"] == pytest.approx(12.5)
    assert families["loadgen_turns"].samples[0].value == 7


def test_without_a_run_the_page_says_so() -> None:
    (family,) = text_string_to_metric_families(page(None).decode())
    assert (family.name, family.samples[0].value) == ("loadgen_running", 0.0)


@pytest.mark.parametrize(("limit_s", "expected"), [(0.0, 0), (0.009, 0), (0.01, 1), (0.02, 2), (10_000.0, 3)])
def test_within_counts_to_the_bucket_of_the_limit(limit_s: float, expected: int) -> None:
    live = Live.of(INFO, {"a": snapshot("w0", {"reuse": [10, 20, 3_000_000]})})
    assert within(live.histograms.get(metrics.TTFT, "reuse"), limit_s) == expected
