from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from synthetic import sweep

from loadgen.cli import main
from loadgen.measure.sample import Sample, TurnClass
from loadgen.report.schema import KINDS, Summary, generated, shipped
from loadgen.report.summary import summarize

MakeRun = Callable[..., Path]


@pytest.mark.parametrize("kind", KINDS)
def test_the_shipped_schema_is_the_types(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert shipped(kind) == generated(kind), "run `python -m loadgen.report.schema`"
    assert main(["report", "--schema", kind]) == 0
    assert capsys.readouterr().out == shipped(kind)


def test_summaries_have_exactly_the_shape(make_run: MakeRun) -> None:
    plain = summarize(make_run(sweep(), name="plain"))
    samples = list(sweep())
    samples[7].klass = TurnClass.RETRY
    retried = summarize(make_run(samples, name="retried", client=[], scale=20.0))
    for summary in (plain, retried):
        assert msgspec.to_builtins(msgspec.convert(json.loads(json.dumps(summary)), Summary)) == summary


def test_sample_fields_are_those_of_the_design_in_its_order() -> None:
    design = [
        "v",
        "run",
        "arm",
        "rep",
        "session",
        "turn",
        "attempt",
        "agent",
        "class",
        "worker",
        "endpoint",
        "request_id",
        "intended_ns",
        "send_ns",
        "sent_ns",
        "headers_ns",
        "first_byte_ns",
        "first_token_ns",
        "first_text_ns",
        "last_token_ns",
        "end_ns",
        "clock",
        "coalesced",
        "lag_ns",
        "client_delay_ns",
        "connect_ns",
        "reused_conn",
        "prompt_tokens",
        "target_tokens",
        "expected_reuse",
        "cached_tokens",
        "output_tokens",
        "requested_tokens",
        "first_event_tokens",
        "chunks",
        "finish",
        "error",
        "tiers",
        "tier_source",
    ]
    fields = [field.encode_name for field in msgspec.structs.fields(Sample)]
    assert [name for name in fields if name in design] == design
