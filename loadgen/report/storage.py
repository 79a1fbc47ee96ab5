"""Throughput of storage and links while the run was under way, from `host.jsonl` and `server.jsonl` where they exist."""

from __future__ import annotations

import itertools
from typing import Any

from loadgen.errors import InputError
from loadgen.measure.probes.host import read_host
from loadgen.measure.probes.host_rates import disk_rates, link_rates, nfs_rates
from loadgen.measure.probes.server import delta
from loadgen.report.explain import read_pages
from loadgen.report.summary import Measured, Timeline

POINTS = 600
# what a server may count of its connector: (canonical counter, name in the chart, unit factor)
_SERVER = (
    ("load_bytes", "connector loads", 1e-9),
    ("store_bytes", "connector stores", 1e-9),
)


def throughput(run: Measured, time: Timeline) -> dict[str, Any]:
    """GB/s (SI) by source: {"series": [{"name", "x", "y"}], "limit": GB/s of the busiest link or null, "note"}.

    A point is the mean between two samples of the counters, put at their middle; wall rates are divided by the time
    scale, so that bytes are a second of the endpoint's.
    """
    series: dict[str, tuple[list[float], list[float]]] = {}
    if not len(run.turns):
        return {"series": [], "limit": None, "note": ""}
    limit, note = _host(run, time, series)
    _server(run, time, series)
    kept = [
        {"name": name, "x": [float(f"{v:.5g}") for v in x], "y": [float(f"{v:.4g}") for v in y]}
        for name, (x, y) in series.items()
        if any(value > 0 for value in y)
    ]
    return {"series": kept, "limit": limit, "note": note}


def _host(
    run: Measured, time: Timeline, series: dict[str, tuple[list[float], list[float]]]
) -> tuple[float | None, str]:
    path = run.folder / "host.jsonl"
    if not path.is_file():
        return None, ""
    try:
        log = read_host(path)
    except InputError as error:
        return None, str(error)
    start, end = int(run.turns.send_ns.min()), int(run.turns.end_ns.max())
    ticks = [tick for tick in log.ticks if start - 2e9 <= tick["wall_ns"] <= end + 2e9]
    step = len(ticks) // POINTS + 1
    bits: dict[str, float] = log.header.get("links_bits_s", {})
    limits = []
    for a, b in itertools.pairwise(ticks[::step]):
        middle = float(time.seconds((a["wall_ns"] + b["wall_ns"]) / 2))
        for op in nfs_rates(a, b):
            if op.op in ("READ", "WRITE") and op.payload_gb_s is not None:
                _add(series, f"NFS {op.op.lower()} {op.mount}", middle, op.payload_gb_s / run.scale)
        for link in link_rates(a, b, bits):
            _add(series, f"{link.link} in", middle, link.in_gb_s / run.scale)
            _add(series, f"{link.link} out", middle, link.out_gb_s / run.scale)
            if link.rate_bits_s:
                limits.append(link.rate_bits_s / 8e9 / run.scale)
        for disk in disk_rates(a, b):
            _add(series, f"{disk.disk} read", middle, disk.read_gb_s / run.scale)
            _add(series, f"{disk.disk} write", middle, disk.write_gb_s / run.scale)
    return (max(limits) if limits else None), ""


def _server(run: Measured, time: Timeline, series: dict[str, tuple[list[float], list[float]]]) -> None:
    pages = read_pages(run.folder)
    step = len(pages) // POINTS + 1
    for a, b in itertools.pairwise(pages[::step]):
        change = delta(a.counters, b.counters)
        elapsed = (b.wall_ns - a.wall_ns) / 1e9 * run.scale
        if change.restarted or elapsed <= 0:
            continue
        middle = float(time.seconds((a.wall_ns + b.wall_ns) / 2))
        for counter, name, factor in _SERVER:
            value = change.counters.get(counter)
            if value is not None:
                _add(series, name, middle, value * factor / elapsed)


def _add(series: dict[str, tuple[list[float], list[float]]], name: str, x: float, y: float) -> None:
    xs, ys = series.setdefault(name, ([], []))
    xs.append(x)
    ys.append(y)
