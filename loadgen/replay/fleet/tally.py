"""What a worker has measured so far, as it goes into snapshots."""

from __future__ import annotations

from loadgen.measure import metrics
from loadgen.measure.hist import HistogramSet
from loadgen.measure.sample import Sample

TIERS = ("compute", "hbm", "external", "unknown")
COUNTS = (
    *("turns", "errors", "in_flight", "output_tokens", "prompt_tokens"),
    *("prompt_tokens_known", "cached_tokens"),  # of turns whose cached tokens the server reported
    *(f"tier_{tier}" for tier in TIERS),  # of turns with a source
)


class Tally:
    """Histograms and counts, from the start of the run."""

    def __init__(self) -> None:
        self.histograms = HistogramSet()
        self.counts = dict.fromkeys(COUNTS, 0)

    def add(self, sample: Sample, time_scale: float) -> None:
        counts = self.counts
        metrics.record(self.histograms, sample, time_scale)
        counts["turns"] += 1
        counts["errors"] += sample.error is not None
        counts["output_tokens"] += sample.output_tokens or 0
        counts["prompt_tokens"] += sample.prompt_tokens or 0
        if sample.cached_tokens is not None and sample.prompt_tokens is not None:
            counts["prompt_tokens_known"] += sample.prompt_tokens
            counts["cached_tokens"] += sample.cached_tokens
        if sample.tiers is not None:
            for tier in TIERS:
                counts[f"tier_{tier}"] += getattr(sample.tiers, tier)
