"""The steady part of a closed run, its rates and where they are shown."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from synthetic import MONO, SECOND, WALL, sweep

from loadgen.measure.run import Clock
from loadgen.report import markdown
from loadgen.report.html import chart_data
from loadgen.report.sides import average
from loadgen.report.summary import measure, summarize
from loadgen.report.table import print_table

MakeRun = Callable[..., Path]


def at(seconds: float) -> Clock:
    return Clock(mono_ns=MONO + int(seconds * SECOND), wall_ns=WALL + int(seconds * SECOND))


def closed(make_run: MakeRun, **fields: Any) -> Path:
    """Turns of 2 s and 128 tokens, one after another: 50 of them in 100 s."""
    samples = list(sweep(first_s=1.0, reuse_s=1.0, tpot_s=1 / 127))
    for number, sample in enumerate(samples):
        move = MONO + 2 * number * SECOND - sample.send_ns
        for name in (
            "intended",
            "send",
            "sent",
            "headers",
            "first_byte",
            "first_token",
            "first_text",
            "last_token",
            "end",
        ):
            setattr(sample, f"{name}_ns", getattr(sample, f"{name}_ns") + move)
        sample.intended_ns, sample.end_ns = sample.send_ns, sample.send_ns + 2 * SECOND
    return make_run(samples, schedule={"kind": "closed"}, **fields)


def test_rates_are_those_of_the_turns_that_ended_in_the_window(make_run: MakeRun) -> None:
    found = summarize(closed(make_run, steady_from=at(10), steady_to=at(50)))["steady"]
    assert found == {"from_s": 10.0, "to_s": 50.0, "turns": 20, "turns_s": 0.5, "output_tokens_s": 64.0}


def test_times_are_the_endpoints(make_run: MakeRun) -> None:
    found = summarize(closed(make_run, steady_from=at(10), steady_to=at(50), scale=20.0))["steady"]
    assert (found["from_s"], found["to_s"], found["turns_s"]) == (200.0, 1000.0, 0.025)


def test_a_run_that_a_time_ended_was_steady_until_its_last_turn_was_sent(make_run: MakeRun) -> None:
    assert summarize(closed(make_run, steady_from=at(10)))["steady"]["to_s"] == 98.0


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"steady_from": at(50), "steady_to": at(50)},
        {"steady_from": at(10), "steady_to": at(50), "resumed": ["2026-06-16T01:00:00Z"]},
    ],
)
def test_without_a_window_there_is_none(make_run: MakeRun, fields: dict[str, Any]) -> None:
    folder = closed(make_run, **fields)
    assert summarize(folder)["steady"] is None
    assert chart_data(measure(folder))["steady"] == []
    assert "steady" not in markdown.runs([measure(folder)])


def test_a_failed_turn_and_a_missing_count_do_not_pass_for_output(make_run: MakeRun) -> None:
    folder = closed(make_run, steady_from=at(10), steady_to=at(50))
    path = folder / "samples-w0.jsonl"
    lines = path.read_text().splitlines()
    lines[10] = lines[10].replace('"output_tokens":128', '"output_tokens":null')
    lines[11] = lines[11].replace('"error":null', '"error":"reset"')
    path.write_text("\n".join(lines) + "\n")
    found = summarize(folder)["steady"]
    assert (found["turns"], found["output_tokens_s"]) == (19, None)


def test_it_is_shown(make_run: MakeRun) -> None:
    run = measure(closed(make_run, steady_from=at(10), steady_to=at(50)))
    assert chart_data(run)["steady"] == [10.0, 50.0]
    console = Console(file=io.StringIO(), width=120)
    print_table([run], console)
    shown = console.file.getvalue()  # type: ignore[attr-defined]
    assert "steady: output tokens/s" in shown
    assert "10.0 to 50.0 s" in shown
    assert "| steady: turns/s | 0.50 |" in markdown.runs([run])


def test_a_mean_over_runs_needs_a_window_in_each(make_run: MakeRun) -> None:
    whole = summarize(closed(make_run, name="a", steady_from=at(10), steady_to=at(50)))
    other = summarize(closed(make_run, name="b", steady_from=at(30), steady_to=at(50)))
    none = summarize(closed(make_run, name="c"))
    assert average([whole, other])["steady"]["turns_s"] == 0.5
    assert (average([whole, none])["steady"] or {}).get("turns_s") is None
    assert average([none, whole])["steady"] is None
