"""The split of a TTFT on runs whose parts are chosen; the fit on published and measured cold curves."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from synthetic import CONTEXT, MONO, WALL, sweep

from loadgen.cli import main
from loadgen.measure.probes.host_sampler import VERSION
from loadgen.measure.run import read_run
from loadgen.measure.sample import Sample
from loadgen.report import markdown, words
from loadgen.report.columns import Turns, load
from loadgen.report.counted import whole_change
from loadgen.report.explain import TIMES, Explanation, explain, fit_cold, read_pages
from loadgen.report.html import page
from loadgen.report.summary import measure, total_s
from loadgen.report.why import lines, why

MakeRun = Callable[..., Path]
HIT = 139_776


def with_pages(
    make_run: MakeRun,
    samples: Sequence[Sample],
    *,
    load_s: float,
    tail_s: float = 0.1,
    column: str = "prefill",
    every: int = 1,
    foreign: int = 0,
    bytes_per_token: float = 0.0,
) -> Path:
    """A run folder with a page before the first turn and after every `every` turns."""
    folder = make_run(samples)
    totals = dict.fromkeys(("prompt", "compute", "external", "queue", "prefill", "n"), 0.0)

    def page(mono_ns: int) -> str:
        counters = {
            "process_start_time_seconds": 1.0,
            "vllm:prompt_tokens_total": totals["prompt"],
            'vllm:prompt_tokens_by_source_total{source="local_compute"}': totals["compute"],
            'vllm:prompt_tokens_by_source_total{source="local_cache_hit"}': 0.0,
            'vllm:prompt_tokens_by_source_total{source="external_kv_transfer"}': totals["external"],
            "vllm:request_queue_time_seconds_sum": totals["queue"],
            "vllm:request_prefill_time_seconds_sum": totals["prefill"],
            "vllm:time_to_first_token_seconds_count": totals["n"],
        }
        if bytes_per_token:
            counters["vllm:kv_offload_load_bytes_total"] = totals["external"] * bytes_per_token
            counters["vllm:kv_offload_store_bytes_total"] = totals["compute"] * bytes_per_token
        line = {
            "mono_ns": mono_ns,
            "wall_ns": mono_ns + WALL - MONO,
            "endpoint": "e",
            "label": "x",
            "counters": counters,
        }
        return json.dumps(line)

    lines = [page(samples[0].send_ns - 1000)]
    for place, sample in enumerate(samples, 1):
        assert sample.tiers is not None
        assert sample.first_token_ns is not None
        external = sample.tiers.external
        totals["prompt"] += sample.prompt_tokens or 0
        totals["compute"] += sample.tiers.compute
        totals["external"] += external
        totals["n"] += 1
        if external:
            totals["queue"] += load_s if column == "queue" else 0
            totals["prefill"] += tail_s if column == "queue" else load_s + tail_s
        else:
            totals["prefill"] += (sample.first_token_ns - sample.send_ns) / 1e9 - 0.5
        if place % every == 0:
            lines.append(page(sample.end_ns + 5000))
            totals["prompt"] += foreign
    (folder / "server.jsonl").write_text("\n".join(lines) + '\n{"mono')
    return folder


def explained(folder: Path, **known: object) -> tuple[Turns, Explanation | None]:
    info = read_run(folder)
    turns = load(folder, info)
    return turns, explain(turns, read_pages(folder), scale=info.endpoint.time_scale, **known)  # type: ignore[arg-type]


def offload(**changes: object) -> list[Sample]:
    return list(sweep(sessions=3, turns=3, first_s=22.0, reuse_s=6.6, hit=HIT, **changes))  # type: ignore[arg-type]


@pytest.mark.parametrize("every", [1, 3])
def test_a_synchronous_load_is_prefill_less_the_tail(make_run: MakeRun, every: int) -> None:
    folder = with_pages(make_run, offload(), load_s=4.7, every=every)
    turns, found = explained(
        folder, connector="LMCacheConnectorV1", kv_bytes_per_token=360_448, link_bytes_s=12.5e9
    )
    assert found is not None
    assert found.coverage == 1
    assert found.load_in == "prefill"
    first, reuse = found.groups["first"], found.groups["reuse"]
    assert (first.turns, reuse.turns) == (3, 6)
    assert first.load_s == 0
    assert first.recompute_s == pytest.approx(3 * 21.501, abs=0.001)
    tail = sum(found.fit.compute_s(n, HIT) for n in (140_200, 140_400) for _ in range(3)) if found.fit else 0
    assert reuse.recompute_s == pytest.approx(tail)
    assert reuse.load_s == pytest.approx(6 * 4.8 - tail)
    assert reuse.external_tokens == 6 * HIT
    assert reuse.floor_load_s == pytest.approx(6 * HIT * 360_448 / 12.5e9)
    assert reuse.upload_s == pytest.approx(6 * 50e-6)
    for parts in (first, reuse):
        assert parts.total_s == pytest.approx(sum(getattr(parts, name) for name in TIMES[1:]))
    assert reuse.total_s == pytest.approx(float((turns.first_token_ns - turns.send_ns)[3:].sum()) / 1e9)


def test_an_asynchronous_load_is_the_queue(make_run: MakeRun) -> None:
    folder = with_pages(make_run, offload(), load_s=4.7, column="queue")
    _, found = explained(folder, connector="LMCacheMPConnector")
    assert found is not None
    assert found.groups["reuse"].load_s == pytest.approx(6 * 4.7)
    assert found.groups["reuse"].recompute_s == pytest.approx(6 * 0.1)
    assert found.groups["reuse"].queue_s == 0


@pytest.mark.parametrize("column", ["prefill", "queue"])
def test_an_unnamed_connector_is_told_by_what_its_turns_did(make_run: MakeRun, column: str) -> None:
    _, found = explained(with_pages(make_run, offload(), load_s=4.7, column=column), connector="some")
    assert found is not None
    assert found.load_in == column
    assert found.why.startswith("assumed")


def test_turns_of_somebody_else_leave_nothing_explained(make_run: MakeRun) -> None:
    _, found = explained(with_pages(make_run, offload(), load_s=4.7, foreign=7))
    assert found is not None
    assert found.explained == 1  # before the first foreign turn


def test_overlapping_turns_are_not_explained(make_run: MakeRun) -> None:
    samples = offload()
    samples[4].send_ns = samples[3].send_ns + 1
    _, found = explained(with_pages(make_run, samples, load_s=4.7))
    assert found is not None
    assert found.explained == 7


def test_turns_without_a_source_are_left_out(make_run: MakeRun) -> None:
    samples = offload()
    folder = with_pages(make_run, samples, load_s=4.7)
    lines = (folder / "samples-w0.jsonl").read_text().splitlines()
    last = json.loads(lines[-1])
    last["tiers"] = last["tier_source"] = None
    (folder / "samples-w0.jsonl").write_text("\n".join([*lines[:-1], json.dumps(last)]) + "\n")
    _, found = explained(folder)
    assert found is not None
    assert (found.explained, found.turns) == (8, 9)


def test_a_run_without_pages_has_no_explanation(make_run: MakeRun) -> None:
    _, found = explained(make_run(offload()))
    assert found is None


def test_simulated_time_is_the_endpoints(make_run: MakeRun) -> None:
    folder = make_run(list(sweep(sessions=1, turns=1, scale=20.0)), scale=20.0)
    (sample,) = list(sweep(sessions=1, turns=1, scale=20.0))
    stored = [
        {
            "wall_ns": mono + WALL - MONO,
            "endpoint": "e",
            "counters": {
                "vllm:prompt_tokens_total": n * CONTEXT,
                "vllm:time_to_first_token_seconds_count": n,
                "vllm:request_prefill_time_seconds_sum": n * 21.0,
            },
        }
        for n, mono in ((0, sample.send_ns - 1), (1, sample.end_ns + 1))
    ]
    (folder / "server.jsonl").write_text("\n".join(map(json.dumps, stored)))
    _, found = explained(folder)
    assert found is not None
    assert found.groups["first"].total_s == pytest.approx(22.0, abs=1e-6)
    assert found.groups["first"].recompute_s == pytest.approx(21.0)
    assert found.groups["first"].rest_s == pytest.approx(1.0 - 50e-6 * 20, abs=1e-6)


def host_log(folder: Path, bits_s: float) -> None:
    header = {"type": "host", "v": VERSION, "boot_id": "b", "links_bits_s": {"mlx5_0": bits_s}}
    ticks = [
        {
            "mono_ns": n,
            "wall_ns": WALL + n * 1_000_000_000,
            "ethernet": {},
            "rdma": {"mlx5_0": {"port_rcv_data": n, "port_xmit_data": n}},
            "disks": {},
            "nfs": {},
        }
        for n in range(20)
    ]
    (folder / "host.jsonl").write_text("".join(json.dumps(line) + "\n" for line in (header, *ticks)))


def test_the_report_shows_the_floor_the_curve_and_the_connectors_bytes(make_run: MakeRun) -> None:
    """Bytes a token come from the connector's counters, the link's rate from the host's probe."""
    folder = with_pages(make_run, offload(), load_s=4.7, bytes_per_token=360_448)
    _, found = explained(folder, connector="LMCacheConnectorV1", link_bytes_s=12.5e9)
    assert found is not None
    assert found.kv_bytes_per_token == pytest.approx(360_448)
    assert found.groups["reuse"].floor_load_s == pytest.approx(6 * HIT * 360_448 / 12.5e9)
    host_log(folder, 100e9)
    run = measure(folder)
    text = page([run])
    assert "off, reuse: floor" in text
    assert "load from the tier: 4.03 s" in text  # 139,776 x 360,448 B / 12.5 GB/s
    assert re.search(r"cold curve \d+ µs a token from 3 turns of 1 length, none left", text)  # T0 and b are 0
    total = total_s(run) or 0
    assert (
        f"<strong>{words.number(6 * HIT * 360_448 / total * 86_400 / 1e12)}</strong><small>TB a day" in text
    )


def test_every_form_says_the_same(make_run: MakeRun, capsys: pytest.CaptureFixture[str]) -> None:
    folder = with_pages(make_run, offload(), load_s=4.7, bytes_per_token=360_448)
    host_log(folder, 100e9)
    (reuse,) = [line for line in lines(why([measure(folder)])) if line.startswith("off, reuse")]
    assert reuse == (
        "off, reuse: 6.60 s = upload 50.0 µs, load from the tier 4.72 s, recompute 82.3 ms, rest 1.80 s "
        "(floor: load from the tier 4.03 s)"
    )
    assert main(["report", str(folder), "--markdown"]) == 0
    assert f"- {markdown.m(reuse)}" in capsys.readouterr().out
    assert main(["report", str(folder)]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert reuse in shown
    assert "off: read from the tier 2" in shown
    assert "TB a day" in shown


def test_without_bytes_and_a_link_no_floor_of_loading_is_claimed(make_run: MakeRun) -> None:
    text = page([measure(with_pages(make_run, offload(), load_s=4.7))])
    assert "floor of a load" not in text
    assert "TB a day" not in text


def test_bytes_of_others_are_not_this_runs(make_run: MakeRun) -> None:
    """Somebody else's 5,000 prompt tokens after each page but the last: stretches fail, and the sum with them."""
    folder = with_pages(make_run, offload(), load_s=4.7, bytes_per_token=360_448, every=3, foreign=5000)
    run = measure(folder)
    assert whole_change(run, read_pages(folder)) is None
    assert whole_change(run, read_pages(folder)[:1]) is None


@given(
    st.floats(0, 2),
    st.floats(1e-7, 1e-3),
    st.floats(0, 1e-9),
    st.lists(st.integers(1000, 200_000), min_size=4, max_size=8, unique=True),
)
def test_a_curve_of_the_form_is_found_again(t0: float, a: float, b: float, lengths: list[int]) -> None:
    fit = fit_cold([(n, t0 + a * n + b * n * n) for n in lengths])
    assert fit is not None
    assert fit.worst < 1e-3
    assert min(fit.t0_s, fit.a, fit.b) >= 0


def test_two_lengths_predict_a_published_table() -> None:
    """70B FP8 on 8 H100: fitted at 8K and 64K, checked at 16K and 32K (WEKA's gist, 2025-05)."""
    fit = fit_cold([(8192, 0.316), (65_536, 3.150)])
    assert fit is not None
    assert fit.spare == 0
    assert fit.cold_s(32_768) == pytest.approx(1.397, abs=0.01)
    assert fit.cold_s(16_384) == pytest.approx(0.654, abs=0.01)


def test_a_measured_curve_shows_its_residuals() -> None:
    """One H200, 8B-shaped model: the curve is no exact parabola, and the residuals say by how much."""
    fit = fit_cold([(10_000, 0.377), (20_000, 0.736), (40_000, 1.858), (80_000, 5.139), (140_000, 12.783)])
    assert fit is not None
    assert fit.spare == 2
    assert 0.01 < fit.worst < 0.10
    assert [point.tokens for point in fit.points] == [10_000, 20_000, 40_000, 80_000, 140_000]


def test_one_length_charges_by_tokens_and_none_gives_no_fit() -> None:
    fit = fit_cold([(100, 1.0), (100, 3.0)])
    assert fit is not None
    assert fit.compute_s(100, 50) == pytest.approx(1.0)
    assert fit.points[0].turns == 2
    assert fit_cold([]) is None
    assert fit_cold([(0, 1.0), (5, 0.0)]) is None
