"""The worth of a tier on a run small enough to work out by hand."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import sweep

from loadgen.measure.run import read_run
from loadgen.report.columns import load
from loadgen.report.explain import fit_cold
from loadgen.report.worth import sessions_within, worth

MakeRun = Callable[..., Path]
FIT = fit_cold([(140_000, 14.0)])  # 0.1 ms a token


def test_worth_of_a_small_run(make_run: MakeRun) -> None:
    folder = make_run(sweep(sessions=2, turns=2, hit=100_000))
    turns = load(folder, read_run(folder))
    found = worth(turns, FIT, total_s=1800, gpus=8, kv_bytes_per_token=1000, load_s=9.0)
    # two reuse turns of 100,000 external tokens: 20 s of prefill on 8 GPUs in half an hour
    assert found.saved_gpu_s_per_hour == pytest.approx(20 * 8 * 2)
    assert found.loading_gpu_s_per_hour == pytest.approx(9 * 8 * 2)
    assert found.net_gpu_s_per_hour == pytest.approx(176)
    assert found.read_bytes_per_day == pytest.approx(2e5 * 1000 * 48)
    assert found.written_bytes_per_day == pytest.approx((2 * 140_000 + 2 * 40_200) * 1000 * 48)
    assert (found.sourced_turns, found.turns, found.hours) == (4, 4, 0.5)


def test_counted_writes_win_and_missing_inputs_stay_missing(make_run: MakeRun) -> None:
    folder = make_run(sweep(sessions=1, turns=1))
    turns = load(folder, read_run(folder))
    assert worth(turns, FIT, total_s=86_400, stored_bytes=5.0).written_bytes_per_day == 5.0
    bare = worth(turns, None, total_s=60)
    assert bare.saved_gpu_s_per_hour is None
    assert bare.net_gpu_s_per_hour is None
    assert bare.read_bytes_per_day is None
    with pytest.raises(ValueError):
        worth(turns, FIT, total_s=0)


@pytest.mark.parametrize(
    ("times", "best"),
    [
        ({1: [1.0], 2: [1.0, 7.9], 4: [9.0, 9.0]}, 2),
        ({1: [9.0], 2: [1.0]}, None),
        ({4: [1.0] * 9 + [None]}, 4),
        ({4: [1.0] * 8 + [None, None]}, None),
        ({1: [1.0], 2: [9.0], 4: [1.0]}, 1),
        ({1: []}, None),
        ({}, None),
    ],
)
def test_sessions_within_a_limit(times: dict[int, list[float | None]], best: int | None) -> None:
    assert sessions_within(times, 8.0, 0.9) == best
