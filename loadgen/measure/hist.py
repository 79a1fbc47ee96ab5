"""Histograms that merge without loss: one per metric and group, in endpoint microseconds.

Buckets are HdrHistogram's for 1 µs to 1 h with 3 significant digits: a percentile read from them is at most
0.1 % above the true one. Counts are added when histograms merge, so the percentile of a merged histogram is
exactly that of one histogram which saw every value. Beside the counts stand the exact minimum, maximum and sum
(bucket edges are not), and the number of *censored* turns: they ended without the event, so they rank as +infinity.

The hdrhistogram package writes the log (`measure.hlog`). It is not used for recording, because it drops values out
of range silently, rounds ranks instead of taking ceil(q n), and takes 4 ms for a percentile.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

LOWEST_US, HIGHEST_US, DIGITS = 1, 3_600_000_000, 3
SUB_BUCKET_BITS = 11  # 2 x 10^3 rounded up to a power of two
_HALF = 1 << (SUB_BUCKET_BITS - 1)
_MASK = (1 << SUB_BUCKET_BITS) - 1
BUCKETS = ((HIGHEST_US.bit_length() - SUB_BUCKET_BITS) + 2) * _HALF
ALL = "all"  # the union of a metric's groups; never recorded by itself
_PENDING = 4096  # values kept before they are counted in one vectorised step

Int64 = npt.NDArray[np.int64]


def bucket_index(us: Int64) -> Int64:
    """Index of the bucket of each value. Shape is kept. Values are in [0, HIGHEST_US]."""
    # frexp's exponent of an integer below 2^53 is its bit length
    bucket = np.frexp((us | _MASK).astype(np.float64))[1].astype(np.int64) - SUB_BUCKET_BITS
    return np.asarray(((bucket + 1) << (SUB_BUCKET_BITS - 1)) + (us >> bucket) - _HALF, dtype=np.int64)


def highest_equivalent(index: int) -> int:
    """Largest value (µs) that falls into the bucket `index`."""
    bucket = max((index >> (SUB_BUCKET_BITS - 1)) - 1, 0)
    sub = (index & (_HALF - 1)) + (_HALF if index >= _HALF else 0)
    return (sub << bucket) + (1 << bucket) - 1


def rank(q: float, n: int) -> int:
    """Nearest rank ceil(q n), from 1; the epsilon undoes 0.29 x 100 = 28.999…96."""
    return max(1, math.ceil(q * n - 1e-9))


class Histogram:
    """Counts of one metric. `count` is the number of finite values, `n` counts the censored ones too."""

    __slots__ = ("_clipped", "_counts", "_max", "_min", "_pending", "_sum", "censored")

    def __init__(self) -> None:
        self._counts: Int64 | None = None
        self._pending = array("q")
        self.censored = 0
        self._clipped = 0
        self._sum = 0
        self._min: int | None = None
        self._max: int | None = None

    def record(self, us: int) -> None:
        """Record one value in microseconds. About 0.3 µs; the counting is done in batches."""
        self._pending.append(us)
        if len(self._pending) >= _PENDING:
            self._count_pending()

    def record_many(self, us: Int64) -> None:
        """Record a vector of values in microseconds."""
        if not us.size:
            return
        clipped = np.clip(us, 0, HIGHEST_US)
        self._include(
            np.bincount(bucket_index(clipped), minlength=BUCKETS),
            low=int(clipped.min()),
            high=int(clipped.max()),
            total=int(clipped.sum()),
            clipped=int(np.count_nonzero(clipped != us)),
        )

    def _include(self, counts: Int64, *, low: int, high: int, total: int, clipped: int) -> None:
        self._counts = counts if self._counts is None else self._counts + counts
        self._min = low if self._min is None else min(self._min, low)
        self._max = high if self._max is None else max(self._max, high)
        self._sum += total
        self._clipped += clipped

    def _count_pending(self) -> None:
        if self._pending:
            values = np.frombuffer(self._pending, dtype=np.int64)
            self._pending = array("q")
            self.record_many(values)

    @property
    def counts(self) -> Int64:
        """Counts by bucket, shape [BUCKETS]; to be read only."""
        self._count_pending()
        return np.zeros(BUCKETS, dtype=np.int64) if self._counts is None else self._counts

    @property
    def count(self) -> int:
        return int(self.counts.sum())

    @property
    def sum(self) -> int:
        self._count_pending()
        return self._sum

    @property
    def min(self) -> int | None:
        self._count_pending()
        return self._min

    @property
    def max(self) -> int | None:
        self._count_pending()
        return self._max

    @property
    def clipped(self) -> int:
        """Values outside [0, 1 h], which were recorded at the edge."""
        self._count_pending()
        return self._clipped

    @property
    def n(self) -> int:
        return self.count + self.censored

    def add(self, other: Histogram) -> None:
        """Add another histogram's counts, extremes and censored turns."""
        low, high = other.min, other.max
        if low is not None and high is not None:
            self._count_pending()
            self._include(other.counts, low=low, high=high, total=other.sum, clipped=other.clipped)
        self.censored += other.censored

    def mean_us(self) -> float | None:
        """Exact mean, or None when there is none: no value at all, or a censored turn (its value is unbounded)."""
        count = self.count
        return None if self.censored or not count else self.sum / count

    def percentile_us(self, q: float) -> int | None:
        """Value at rank ceil(q n), censored turns ranking last; None where the rank falls among them, or n is 0."""
        return self.percentiles_us((q,))[0]

    def percentiles_us(self, qs: tuple[float, ...]) -> list[int | None]:
        """`percentile_us` of several q in one pass."""
        cumulative = np.cumsum(self.counts)
        count = int(cumulative[-1])
        found: list[int | None] = []
        for q in qs:
            position = rank(q, count + self.censored)
            if position > count:
                found.append(None)
                continue
            index = int(np.searchsorted(cumulative, position))
            found.append(min(highest_equivalent(index), self.max or 0))
        return found


class HistogramSet:
    """Histograms by metric and group (a class of turns). Cumulative: merging the latest snapshot of each worker is exact."""

    def __init__(self) -> None:
        self._by_key: dict[tuple[str, str], Histogram] = {}

    def _at(self, metric: str, group: str) -> Histogram:
        key = (metric, group)
        found = self._by_key.get(key)
        if found is None:
            found = self._by_key[key] = Histogram()
        return found

    def record(self, metric: str, group: str, us: int) -> None:
        self._at(metric, group).record(us)

    def record_many(self, metric: str, group: str, us: Int64) -> None:
        self._at(metric, group).record_many(us)

    def censor(self, metric: str, group: str, turns: int = 1) -> None:
        """Count turns that ended without this metric's event."""
        self._at(metric, group).censored += turns

    def get(self, metric: str, group: str = ALL) -> Histogram:
        """The histogram of a metric and group; `all` is the union of its groups. An empty one when nothing was recorded."""
        if group != ALL:
            return self._by_key.get((metric, group)) or Histogram()
        union = Histogram()
        for (name, _), histogram in self._by_key.items():
            if name == metric:
                union.add(histogram)
        return union

    def items(self) -> Iterator[tuple[str, str, Histogram]]:
        """(metric, group, histogram) of everything recorded, sorted."""
        for (metric, group), histogram in sorted(self._by_key.items()):
            yield metric, group, histogram

    def snapshot(self) -> dict[str, bytes | int]:
        """Everything recorded so far as a flat dict of bytes and integers (msgpack-able), keyed `metric|group|field`.

        `buckets` holds the indexes of the non-empty buckets (little-endian uint16), then their counts (uint32).
        """
        flat: dict[str, bytes | int] = {}
        for metric, group, histogram in self.items():
            counts = histogram.counts
            index = np.flatnonzero(counts)
            key = f"{metric}|{group}|"
            flat[key + "buckets"] = index.astype("<u2").tobytes() + counts[index].astype("<u4").tobytes()
            flat[key + "sum"] = histogram.sum
            flat[key + "censored"] = histogram.censored
            flat[key + "clipped"] = histogram.clipped
            if histogram.min is not None and histogram.max is not None:
                flat[key + "min"], flat[key + "max"] = histogram.min, histogram.max
        return flat

    def merge(self, snapshot: dict[str, bytes | int]) -> None:
        """Add a snapshot of another set. To merge workers, start from an empty set and add each one's latest snapshot."""
        for key, value in snapshot.items():
            if not key.endswith("|buckets") or not isinstance(value, bytes):
                continue
            metric, group, _ = key.split("|")
            prefix = key.removesuffix("buckets")
            filled = len(value) // 6
            index = np.frombuffer(value, dtype="<u2", count=filled)
            counts = np.frombuffer(value, dtype="<u4", offset=2 * filled)
            into = self._at(metric, group)
            if index.size:
                dense = np.zeros(BUCKETS, dtype=np.int64)
                dense[index] = counts
                low, high, total, clipped = (
                    int(snapshot[prefix + name]) for name in ("min", "max", "sum", "clipped")
                )
                into._include(dense, low=low, high=high, total=total, clipped=clipped)
            into.censored += int(snapshot[prefix + "censored"])
