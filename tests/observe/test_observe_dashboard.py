"""The Grafana dashboard asks for what the exporter has."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from test_observe_live import INFO, snapshot

from loadgen.measure import metrics
from loadgen.measure.hist import HistogramSet
from loadgen.observe.live import Live
from loadgen.observe.prometheus import page

DASHBOARD = Path(__file__).resolve().parents[2] / "deploy" / "grafana" / "loadgen.json"


def exported() -> tuple[set[str], set[str]]:
    """(sample names, label names) of a page on which everything stands."""
    one = snapshot("w0", {"first": [1], "reuse": [1]})
    every = HistogramSet()
    for metric in metrics.METRICS:
        every.record(metric, "reuse", 1000)
    one["histograms"] = every.snapshot()
    samples = [
        s for f in text_string_to_metric_families(page(Live.of(INFO, {"a": one})).decode()) for s in f.samples
    ]
    return {s.name for s in samples}, {label for s in samples for label in s.labels}


def test_every_query_is_over_metrics_and_labels_that_exist() -> None:
    names, labels = exported()
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    assert len(queries) > 20
    for query in queries:
        assert query.count("(") == query.count(")"), query
        assert set(re.findall(r"loadgen_\w+", query)) <= names, query
        assert set(re.findall(r"(\w+)=~?\"", query)) <= labels | {"job"}, query
        assert set(re.findall(r"by \((\w+)\)", query)) <= labels, query


def test_panels_do_not_overlap() -> None:
    cells = [
        (x, y)
        for panel in json.loads(DASHBOARD.read_text())["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
