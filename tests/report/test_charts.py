from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from synthetic import MONO, SECOND, WALL, sweep

from loadgen.measure.probes.host_sampler import VERSION
from loadgen.measure.sample import Sample
from loadgen.report import charts
from loadgen.report.counted import counted
from loadgen.report.headline import headline
from loadgen.report.html import page
from loadgen.report.storage import throughput
from loadgen.report.summary import measure, summary_of, timeline_of

MakeRun = Callable[..., Path]


def many(sessions: int = 300, turns: int = 40) -> Iterator[Sample]:
    generator = random.Random(1)
    for sample in sweep(sessions=sessions, turns=turns):
        assert sample.first_token_ns is not None
        sample.first_token_ns += int(generator.lognormvariate(0, 1) * SECOND)
        yield sample


def test_a_scatter_is_bounded_and_keeps_the_slowest(make_run: MakeRun) -> None:
    run = measure(make_run(many()))
    series = charts.timeline(run, timeline_of(run))
    assert sum(len(one["x"]) for one in series) <= charts.POINTS + 2
    slowest = max(max(one["y"]) for one in series)
    assert slowest == pytest.approx(summary_of(run)["groups"]["all"]["ttft_s"]["max"], rel=1e-4)
    lanes = charts.lanes(run, timeline_of(run))
    assert len(lanes["names"]) == charts.LANES
    assert len(lanes["send"]) <= charts.BARS
    assert not lanes["whole"]
    assert len(page([run])) < 1_000_000


def test_spectrum_rises_and_says_what_is_supported(make_run: MakeRun) -> None:
    run = measure(make_run(sweep(reuse_s=6.6)))
    first, reuse = charts.spectrum(run)
    assert (first["class"], first["n"], reuse["n"]) == ("first", 10, 40)
    assert reuse["y"] == sorted(reuse["y"])
    assert 1.0 < reuse["supported"] < 1.301  # 40 turns support p90 and not p95
    assert first["supported"] < 1.0


def test_idle_time_is_of_the_own_session(make_run: MakeRun) -> None:
    run = measure(make_run(sweep(sessions=2, turns=2, first_s=10, reuse_s=5)))
    (series,) = charts.idle_time(run)
    assert series["class"] == "reuse"
    answer = 127 * 0.0145
    assert series["x"] == pytest.approx([10 + answer, 5 + answer], abs=0.01)


def test_rounds_belong_to_sweeps(make_run: MakeRun) -> None:
    swept = measure(make_run(sweep(sessions=2, turns=3), name="a", schedule={"kind": "sweep"}))
    closed = measure(make_run(sweep(sessions=2, turns=3), name="b", schedule={"kind": "closed"}))
    assert len(charts.rounds(swept, timeline_of(swept))) == 3
    assert charts.rounds(closed, timeline_of(closed)) == []


def test_throughput_of_links_and_connector(make_run: MakeRun) -> None:
    folder = make_run(sweep(sessions=2, turns=2))
    lines = [{"type": "host", "v": VERSION, "boot_id": "b", "links_bits_s": {"mlx5_0/1": 100e9}}]
    pages = []
    for second in range(0, 60, 2):
        stamps = {"mono_ns": MONO + second * SECOND, "wall_ns": WALL + second * SECOND}
        moved = {"port_rcv_data": second * 10**9, "port_xmit_data": 0}
        lines.append({**stamps, "rdma": {"mlx5_0/1": moved}})  # type: ignore[dict-item]
        counters = {"vllm:kv_offload_load_bytes_total": second * 5e8, "vllm:prompt_tokens_total": second}
        pages.append({**stamps, "endpoint": "e", "label": "tick", "counters": counters})
    (folder / "host.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "server.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    run = measure(folder)
    found = throughput(run, timeline_of(run))
    by_name = {series["name"]: series for series in found["series"]}
    assert set(by_name) == {"mlx5_0/1 in", "connector loads"}  # nothing went out, nothing was stored
    assert by_name["mlx5_0/1 in"]["y"] == pytest.approx([1.0] * len(by_name["mlx5_0/1 in"]["y"]))
    assert by_name["connector loads"]["y"][0] == pytest.approx(0.5)
    assert found["limit"] == pytest.approx(12.5)


@pytest.mark.parametrize(("others", "known"), [(0, True), (17, False)])
def test_counters_speak_for_the_run_only_when_nobody_else_was_there(
    make_run: MakeRun, others: int, known: bool
) -> None:
    samples = list(sweep(sessions=2, turns=2))
    for sample in samples:
        sample.tiers = sample.tier_source = None
    folder = make_run(samples)
    total = sum(sample.prompt_tokens or 0 for sample in samples)
    pages = []
    for label, wall, tokens in (("start", WALL - SECOND, 0), ("end", WALL + 500 * SECOND, total + others)):
        source = "vllm:prompt_tokens_by_source_total"
        counters = {"vllm:prompt_tokens_total": 1000 + tokens, f'{source}{{source="local_compute"}}': 1000 + tokens,
                    f'{source}{{source="local_cache_hit"}}': 0, f'{source}{{source="external_kv_transfer"}}': 0}  # fmt: skip
        pages.append({"mono_ns": 0, "wall_ns": wall, "endpoint": "e", "label": label, "counters": counters})
    (folder / "server.jsonl").write_text("".join(json.dumps(page) + "\n" for page in pages))
    run = measure(folder)
    found = counted(run)
    assert (found is not None) is known
    assert summary_of(run)["tiers"]["unknown"] == total  # turn by turn nothing is known
    assert ("server&#x27;s counters" in page([run])) is known


def test_headlines(make_run: MakeRun) -> None:
    off = summary_of(measure(make_run(sweep(), name="off")))
    on = summary_of(measure(make_run(sweep(arm="on", first_s=26, reuse_s=6.6), name="on", arm="on")))
    assert headline([off]).startswith("First token after 22.0 s on reuse turns (mean, p90 22.0 s)")
    assert headline([off, on]) == (
        "on: first token 3.33× faster on reuse turns (22.0 s → 6.60 s), first turns 4.00 s later; the whole job 1.93× faster"
    )
    assert headline([off, on], comparable=False) == "Not comparable: off and on did not do the same work"
    off["groups"]["reuse"]["ttft_s"]["mean"] = None
    assert headline([off, on]) == "on: first token on reuse turns p50 22.0 s → 6.61 s, p90 22.0 s → 6.61 s"
