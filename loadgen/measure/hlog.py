"""HdrHistogram V2 logs (`*.hlog`), readable by the other HdrHistogram tools (Java, JS, Go).

One tagged line a metric and group. The header lines are written here: hdrhistogram 0.10's own raise, and it cannot
write tags. Empty histograms are left out, since adding one sets another's minimum to 0.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from hdrh.histogram import HdrHistogram

from loadgen.measure.hist import BUCKETS, DIGITS, HIGHEST_US, LOWEST_US, Histogram, HistogramSet


def to_hdr(histogram: Histogram) -> HdrHistogram:
    """The same counts as an object of the hdrhistogram package."""
    hdr = HdrHistogram(LOWEST_US, HIGHEST_US, DIGITS)
    assert hdr.counts_len == BUCKETS, "hdrhistogram changed its layout"
    counts = histogram.counts
    np.frombuffer(hdr.counts, dtype=np.uint64)[:] = counts
    index = np.flatnonzero(counts)
    if index.size:
        hdr.set_internal_tacking_values(int(index[0]), int(index[-1]), int(counts.sum()))
    return hdr


def write_log(path: Path, histograms: HistogramSet, *, start_s: float, length_s: float) -> None:
    """Write `path`: `start_s` is the run's start (seconds since the epoch), `length_s` its length in wall seconds.

    Values are endpoint microseconds; `Interval_Max` is in seconds, as the other tools expect it with their default ratio.
    """
    stamp = datetime.fromtimestamp(start_s, UTC).isoformat(sep=" ", timespec="milliseconds")
    lines = [
        "#[Endpoint microseconds by metric and class of turn; censored turns are not in the counts]",
        "#[Histogram log format version 1.3]",
        f"#[StartTime: {start_s:.3f} (seconds since epoch), {stamp}]",
        '"StartTimestamp","Interval_Length","Interval_Max","Interval_Compressed_Histogram"',
    ]
    for metric, group, histogram in histograms.items():
        if histogram.max is None:
            continue
        payload = to_hdr(histogram).encode().decode("ascii")
        lines.append(
            f"Tag={metric}.{group},{start_s:.3f},{length_s:.3f},{histogram.max / 1_000_000:.6f},{payload}"
        )
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
