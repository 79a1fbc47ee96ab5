"""Live histograms and those recomputed from the samples are the same to the bit."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loadgen.measure import metrics
from loadgen.measure.hist import HistogramSet
from loadgen.measure.journal import SampleWriter
from loadgen.measure.run import read_run
from loadgen.measure.sample import ErrorClass, Sample, TurnClass
from loadgen.report.columns import load
from loadgen.report.figures import NEEDED, histograms, needed

STAMP = st.integers(0, 600_000_000_000)
MAYBE = st.none() | STAMP


@st.composite
def samples(draw: st.DrawFn) -> Sample:
    send = draw(STAMP)
    first = draw(st.none() | st.integers(send, send + 10**11))
    last = None if first is None else draw(st.integers(first, first + 10**11))
    return Sample(
        run="r", arm="a", rep=0, session=draw(st.sampled_from("abc")), turn=draw(st.integers(0, 5)),
        klass=draw(st.sampled_from(TurnClass)), worker=draw(st.sampled_from(["w0", "w1"])), endpoint="e", request_id="q",
        intended_ns=send - draw(st.integers(0, 10**9)), send_ns=send, sent_ns=draw(st.none() | st.just(send + 12_345)),
        first_token_ns=first, last_token_ns=last, end_ns=(last or send) + 777, clock="kernel",
        output_tokens=draw(st.none() | st.integers(0, 300)), first_event_tokens=draw(st.none() | st.integers(0, 4)),
        max_gap_ns=draw(MAYBE), burst=draw(st.booleans()), error=draw(st.none() | st.sampled_from(ErrorClass)),
    )  # fmt: skip


@given(st.lists(samples(), min_size=1, max_size=40), st.sampled_from([1.0, 20.0, 7.3]))
@settings(deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_live_equals_offline(tmp_path_factory: object, drawn: list[Sample], scale: float) -> None:
    folder: Path = tmp_path_factory.mktemp("run")  # type: ignore[attr-defined]
    (folder / "run.json").write_text(
        '{"run":"r","arm":"a","created":"","endpoint":{"url":"","model":""},"plan":{"sessions":1,"turns":1}}'
    )
    live = HistogramSet()
    with SampleWriter(folder / "samples-w.jsonl") as writer:
        for sample in drawn:
            writer.write(sample)
            metrics.record(live, sample, scale)
    offline = histograms(load(folder, read_run(folder)), scale)
    for metric in metrics.METRICS:
        for group in (*TurnClass, "all"):
            one, other = live.get(metric, group), offline.get(metric, group)
            assert np.array_equal(one.counts, other.counts), (metric, group)
            assert (one.sum, one.min, one.max, one.censored) == (
                other.sum,
                other.min,
                other.max,
                other.censored,
            )


def test_needed_turns_follow_from_the_order_statistic_bound() -> None:
    assert {f"p{q}": needed(q / 100) for q in (50, 90, 95, 99)} == NEEDED
