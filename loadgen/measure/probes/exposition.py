"""Reading a few series out of a page in the Prometheus text format.

A vLLM page is 70 KB and 660 series, of which a probe needs about forty. The wanted lines are picked by name
first and only those go through `prometheus_client`'s parser: a tenth of the CPU time of parsing the whole page
(`benchmarks/metrics_page.py`), cheap enough to leave on while a load runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import NamedTuple

from prometheus_client.parser import text_string_to_metric_families


class Series(NamedTuple):
    """One series of a page: its sample name (with `_total`, `_sum` …), labels and value."""

    name: str
    labels: Mapping[str, str]
    value: float


def read_series(page: str, wanted: Collection[str]) -> list[Series]:
    """The series of `page` whose sample name is in `wanted`, in page order.

    Comments, TYPE lines included, are skipped: names and labels say all that is needed here. Raises
    ValueError when one of the wanted lines cannot be parsed.
    """
    names = frozenset(wanted)
    lines = [line for line in page.split("\n") if _name(line) in names]
    if not lines:
        return []
    text = "\n".join(lines) + "\n"
    return [
        Series(sample.name, sample.labels, float(sample.value))
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    ]


def series_key(series: Series) -> str:
    """`name{a="1",b="2"}`, labels sorted and escaped as in the text format: the key in `server.jsonl`."""
    if not series.labels:
        return series.name
    pairs = ",".join(f'{k}="{_escape(v)}"' for k, v in sorted(series.labels.items()))
    return f"{series.name}{{{pairs}}}"


def render(series: Mapping[str, float]) -> str:
    """The page that `series` (by key) came from, so that what was stored reads like what was scraped."""
    return "".join(f"{key} {value!r}\n" for key, value in series.items())


def _name(line: str) -> str:
    brace = line.find("{")
    return line[:brace] if brace > 0 else line.partition(" ")[0]


def _escape(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
