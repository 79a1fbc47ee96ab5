from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hdrh.log import HistogramLogReader
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.measure.hist import (
    ALL,
    HIGHEST_US,
    Histogram,
    HistogramSet,
    bucket_index,
    highest_equivalent,
    rank,
)
from loadgen.measure.hlog import to_hdr, write_log

VALUES = st.integers(0, HIGHEST_US)
QS = (0.01, 0.5, 0.9, 0.95, 0.99, 1.0)


def filled(values: list[int]) -> Histogram:
    histogram = Histogram()
    for value in values:
        histogram.record(value)
    return histogram


@given(st.lists(VALUES, min_size=1))
def test_buckets_are_those_of_hdrhistogram(values: list[int]) -> None:
    reference = HdrHistogram(1, HIGHEST_US, 3)
    for value, index in zip(values, bucket_index(np.array(values)).tolist(), strict=True):
        assert index == reference.get_counts_array_index(value)
        assert highest_equivalent(index) == reference.get_highest_equivalent_value(value)


@given(st.lists(st.lists(VALUES), min_size=1, max_size=5), st.integers(0, 5))
@settings(deadline=None)
def test_merging_workers_equals_one_that_saw_everything(workers: list[list[int]], censored: int) -> None:
    merged, offline = HistogramSet(), HistogramSet()
    for number, values in enumerate(workers):
        worker = HistogramSet()
        for value in values:
            for histograms in (worker, offline):
                histograms.record("ttft_s", "first" if value % 3 else "reuse", value)
        if number == 0:
            for histograms in (worker, offline):
                histograms.censor("ttft_s", "reuse", censored)
        worker.snapshot()  # cumulative: an earlier snapshot changes nothing
        merged.merge(msgspec.msgpack.decode(msgspec.msgpack.encode(worker.snapshot())))
    for group in ("first", "reuse", ALL):
        one, other = merged.get("ttft_s", group), offline.get("ttft_s", group)
        assert np.array_equal(one.counts, other.counts)
        assert (one.sum, one.min, one.max, one.censored) == (other.sum, other.min, other.max, other.censored)
        assert one.percentiles_us(QS) == other.percentiles_us(QS)


@given(st.lists(VALUES, min_size=1), st.integers(0, 20), st.sampled_from(QS))
@settings(deadline=None)
def test_percentile_is_the_raw_nearest_rank_to_three_digits(
    values: list[int], censored: int, q: float
) -> None:
    histogram = filled(values)
    histogram.censored = censored
    position = rank(q, len(values) + censored)
    found = histogram.percentile_us(q)
    if position > len(values):
        assert found is None
    else:
        true = sorted(values)[position - 1]
        assert found is not None
        assert true <= found <= max(true * 1.001, true + 1)


def test_rank_is_ceil_and_survives_floats() -> None:
    assert rank(0.99, 60) == 60  # hdrhistogram rounds to 59
    assert rank(0.29, 100) == 29  # 0.29 * 100 is 28.999…96
    assert rank(0.5, 1) == 1
    assert [rank(0.9, n) for n in (9, 10, 11)] == [9, 9, 10]


def test_extremes_mean_and_sum_are_exact() -> None:
    histogram = filled([123_456, 7, 22_000_001])
    assert (histogram.min, histogram.max, histogram.sum) == (7, 22_000_001, 22_123_464)
    assert histogram.counts.sum() == 3
    assert histogram.percentile_us(1.0) == 22_000_001  # never above the maximum
    assert histogram.mean_us() == 22_123_464 / 3
    histogram.censored = 1
    assert histogram.mean_us() is None
    assert histogram.n == 4


def test_out_of_range_is_clipped_and_counted_not_dropped() -> None:
    histogram = filled([-5, HIGHEST_US + 1, 10])
    assert histogram.count == 3
    assert histogram.clipped == 2
    assert (histogram.min, histogram.max) == (0, HIGHEST_US)


def test_an_empty_histogram_changes_nothing_when_added() -> None:
    histogram = filled([50, 60])
    histogram.add(Histogram())
    assert (histogram.min, histogram.count) == (50, 2)
    assert Histogram().percentile_us(0.5) is None
    assert Histogram().mean_us() is None


def test_batches_are_counted_once() -> None:
    values = list(range(10_000))
    histogram = filled(values)
    assert histogram.count == 10_000
    assert histogram.sum == sum(values)


def test_log_is_read_by_hdrhistogram(tmp_path: Path) -> None:
    histograms = HistogramSet()
    for value in (6_600_000, 6_700_000, 22_000_000):
        histograms.record("ttft_s", "reuse", value)
    histograms.record("tpot_s", "reuse", 14_500)
    histograms.censor("ttft_s", "first")  # empty: left out, since it would set a sum's minimum to 0
    path = tmp_path / "turns.hlog"
    write_log(path, histograms, start_s=1_750_000_000.5, length_s=12.25)
    reader = HistogramLogReader(str(path), HdrHistogram(1, HIGHEST_US, 3))
    found = {}
    while (histogram := reader.get_next_interval_histogram()) is not None:
        found[histogram.get_tag()] = histogram
    reader.close()
    assert sorted(found) == ["tpot_s.reuse", "ttft_s.reuse"]
    read = found["ttft_s.reuse"]
    assert read.get_total_count() == 3
    assert read.get_value_at_percentile(100) == pytest.approx(22_000_000, rel=1e-3)
    assert "#[StartTime: 1750000000.500 (seconds since epoch)" in path.read_text()


@given(st.lists(VALUES, min_size=1))
@settings(deadline=None)
def test_hdr_object_has_the_same_counts(values: list[int]) -> None:
    reference = HdrHistogram(1, HIGHEST_US, 3)
    for value in values:
        reference.record_value(value)
    ours = to_hdr(filled(values))
    assert list(ours.counts) == list(reference.counts)
    assert ours.get_total_count() == len(values)
