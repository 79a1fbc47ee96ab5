from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from synthetic import sweep

from loadgen.measure.sample import ErrorClass
from loadgen.report.pairing import differences
from loadgen.report.summary import measure

MakeRun = Callable[..., Path]


def test_order_and_names_do_not_matter_only_work_does(make_run: MakeRun) -> None:
    samples = list(sweep(sessions=3, turns=2))
    a, b = measure(make_run(samples, name="a")).turns, measure(make_run(reversed(samples), name="b")).turns
    assert differences(a, b) == differences(b, a) == ""


def test_the_last_attempt_of_a_turn_counts(make_run: MakeRun) -> None:
    whole = list(sweep(sessions=3, turns=2))
    retried = list(sweep(sessions=3, turns=2))
    failed = list(sweep(sessions=3, turns=2))[4]
    failed.error, failed.output_tokens, failed.prompt_tokens = ErrorClass.RESET, 3, 5
    retried[4].attempt = 2
    a = measure(make_run(whole, name="a")).turns
    b = measure(make_run([*retried[:4], failed, *retried[4:]], name="b")).turns
    assert differences(a, b) == ""


def test_what_differs_is_counted(make_run: MakeRun) -> None:
    other = list(sweep(sessions=3, turns=2))
    assert other[0].prompt_tokens is not None
    other[0].prompt_tokens += 7
    other[5].session = "another"
    a = measure(make_run(sweep(sessions=3, turns=2), name="a")).turns
    b = measure(make_run(other, name="b")).turns
    text = differences(a, b)
    assert "2 turns exist in one arm only" in text
    assert "1 of 5 paired turns differ in prompt tokens" in text
    assert "generated" not in text
