"""The figures of `measure.metrics` over columns, and their histograms. Equal to the live ones to the bit (tested)."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from loadgen.measure import metrics
from loadgen.measure.hist import HistogramSet
from loadgen.report.columns import ABSENT, CLASSES, Bools, Ints, Turns

# turns that a percentile needs: the smallest n with a distribution-free upper 95 % bound, 1 - q^n >= 0.95
NEEDED = {"p50": 5, "p90": 29, "p95": 59, "p99": 299}
QUANTILES = {"p50": 0.50, "p90": 0.90, "p95": 0.95, "p99": 0.99}


def needed(q: float) -> int:
    """Turns without which the upper 95 % bound of the q quantile lies beyond the maximum."""
    return math.ceil(math.log(0.05) / math.log(q))


def to_us(duration_ns: Ints, time_scale: float) -> Ints:
    """`metrics.to_us` of a vector."""
    return (duration_ns * (time_scale / 1000.0) + 0.5).astype(np.int64)


def figure(turns: Turns, metric: str, time_scale: float) -> tuple[Ints, Bools]:
    """(values in endpoint µs [N], where there is one [N]); a value without its turn having one is meaningless."""
    has_first = np.asarray(turns.first_token_ns != ABSENT)
    if metric == metrics.TTFT:
        return to_us(turns.first_token_ns - turns.send_ns, time_scale), has_first
    if metric == metrics.TTFT_INTENDED:
        return to_us(turns.first_token_ns - turns.intended_ns, time_scale), has_first
    if metric == metrics.UPLOAD:
        return to_us(turns.sent_ns - turns.send_ns, time_scale), np.asarray(turns.sent_ns != ABSENT)
    if metric == metrics.E2E:
        return to_us(turns.end_ns - turns.send_ns, time_scale), turns.ok
    if metric == metrics.CHUNK_GAP:
        return to_us(turns.max_gap_ns, time_scale), turns.ok & (turns.max_gap_ns != ABSENT)
    if metric != metrics.TPOT:
        raise ValueError(metric)
    later = turns.output_tokens - np.where(turns.first_event_tokens > 0, turns.first_event_tokens, 1)
    has = (
        turns.ok
        & has_first
        & (turns.last_token_ns != ABSENT)
        & (turns.output_tokens >= 2)
        & (later > 0)
        & ~turns.burst
    )
    spread = (turns.last_token_ns - turns.first_token_ns) * (time_scale / 1000.0)
    return (spread / np.where(later > 0, later, 1) + 0.5).astype(np.int64), has


def histograms(turns: Turns, time_scale: float) -> HistogramSet:
    """Histograms of every metric by class of turn."""
    found = HistogramSet()
    for metric in metrics.METRICS:
        values, has = figure(turns, metric, time_scale)
        for code, name in enumerate(CLASSES):
            member: npt.NDArray[np.bool_] = turns.klass == code
            if not member.any():
                continue
            found.record_many(metric, name, values[member & has])
            if metric in metrics.CENSORABLE:
                found.censor(metric, name, int(np.count_nonzero(member & ~has)))
    return found
