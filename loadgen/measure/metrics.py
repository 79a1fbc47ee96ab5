"""The figures of one turn, derived from its stamps (design, section 4), in endpoint microseconds.

Replay records them live, the report recomputes them from the samples with `report.columns`; both use the same
arithmetic (one float multiplication, then half-up rounding), so that live and offline histograms are equal to the bit.
"""

from __future__ import annotations

from collections.abc import Iterator

from loadgen.measure.hist import HistogramSet
from loadgen.measure.sample import Sample

TTFT = "ttft_s"  # first_token - send
TTFT_INTENDED = "ttft_intended_s"  # first_token - intended: what the schedule saw (coordinated omission)
UPLOAD = "upload_s"  # sent - send
TPOT = "tpot_s"  # (last_token - first_token) / (n - tokens in the first event)
CHUNK_GAP = "chunk_gap_s"  # longest gap between two chunks of the turn
E2E = "e2e_s"  # end - send
METRICS = (TTFT, TTFT_INTENDED, UPLOAD, TPOT, CHUNK_GAP, E2E)
CENSORABLE = (TTFT, TTFT_INTENDED, E2E)


def to_us(duration_ns: int, time_scale: float) -> int:
    """Wall nanoseconds to endpoint microseconds, rounded half up."""
    return int(duration_ns * (time_scale / 1000.0) + 0.5)


def figures(sample: Sample, time_scale: float) -> Iterator[tuple[str, int | None]]:
    """(metric, µs) of what this turn has; None means censored: the event never came. What does not apply is left out."""
    first, last = sample.first_token_ns, sample.last_token_ns
    if first is None:
        yield TTFT, None
        yield TTFT_INTENDED, None
    else:
        yield TTFT, to_us(first - sample.send_ns, time_scale)
        yield TTFT_INTENDED, to_us(first - sample.intended_ns, time_scale)
    if sample.sent_ns is not None:
        yield UPLOAD, to_us(sample.sent_ns - sample.send_ns, time_scale)
    if sample.error is not None:
        yield E2E, None
        return
    yield E2E, to_us(sample.end_ns - sample.send_ns, time_scale)
    if sample.max_gap_ns is not None:
        yield CHUNK_GAP, to_us(sample.max_gap_ns, time_scale)
    tokens = sample.output_tokens
    if first is None or last is None or tokens is None or tokens < 2 or sample.burst:
        return
    later = tokens - (sample.first_event_tokens or 1)
    if later > 0:
        yield TPOT, int((last - first) * (time_scale / 1000.0) / later + 0.5)


def record(histograms: HistogramSet, sample: Sample, time_scale: float) -> None:
    """Add one turn to the histograms of its class."""
    for metric, us in figures(sample, time_scale):
        if us is None:
            histograms.censor(metric, sample.klass.value)
        else:
            histograms.record(metric, sample.klass.value, us)
