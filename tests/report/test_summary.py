from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest
from synthetic import MONO, OUTPUT, SECOND, client_line, sweep

from loadgen.errors import InputError
from loadgen.measure.run import Incident, Plan, read_run
from loadgen.measure.sample import ErrorClass, Sample
from loadgen.report import build
from loadgen.report.headline import headline
from loadgen.report.rows import rows
from loadgen.report.summary import summarize
from loadgen.report.validity import Code, from_incident, reason

MakeRun = Callable[..., Path]


def codes(folder: Path) -> list[str]:
    return [one["code"] for one in summarize(folder)["reasons"]]


def edited(change: Callable[[Sample], None], **fields: object) -> list[Sample]:
    """A sweep of 5 x 4 turns with something changed in each sample."""
    samples = list(sweep(sessions=5, turns=4, **fields))  # type: ignore[arg-type]
    for sample in samples:
        change(sample)
    return samples


def test_keys_are_those_of_the_design(make_run: MakeRun) -> None:
    summary = summarize(make_run(sweep()))
    assert list(summary) == [
        "protocol", "arm", "valid", "reasons", "total_s", "time_scale", "groups", "rate", "sessions", "tiers", "client", "steady",
    ]  # fmt: skip
    assert list(summary["groups"]) == ["all", "first", "reuse", "rebuilt"]
    assert list(summary["groups"]["all"]) == [
        "turns", "errors", "censored", "aborted", "ttft_s", "ttft_intended_s", "upload_s", "tpot_s", "chunk_gap_s", "e2e_s",
        "prompt_tokens", "cached_tokens", "expected_reuse", "output_tokens",
    ]  # fmt: skip
    assert list(summary["groups"]["all"]["ttft_s"]) == ["mean", "p50", "p90", "p95", "p99", "max"]
    assert list(summary["rate"]) == ["output_tokens_s", "prompt_tokens_s", "turns_s", "goodput"]
    assert list(summary["sessions"]) == ["n", "job_s", "stall_share", "cut"]
    assert list(summary["tiers"]) == ["compute", "hbm", "external", "unknown"]
    assert list(summary["client"]) == ["clock", "lag_s", "coalesced", "loop_lag_s"]


def test_figures_of_a_known_sweep(make_run: MakeRun) -> None:
    summary = summarize(make_run(sweep(first_s=26, reuse_s=6.6, hit=139_776)))
    assert (summary["valid"], summary["reasons"]) == (True, [])
    everything, first, reuse = (summary["groups"][name] for name in ("all", "first", "reuse"))
    assert (everything["turns"], first["turns"], reuse["turns"]) == (50, 10, 40)
    assert first["ttft_s"]["mean"] == pytest.approx(26.0045, abs=1e-6)
    assert reuse["ttft_s"]["mean"] == pytest.approx(6.6045, abs=1e-6)
    assert reuse["ttft_s"]["p50"] == pytest.approx(6.604, rel=1e-3)  # rank 20 of 40: the fifth session's
    assert reuse["ttft_s"]["p90"] == pytest.approx(6.608, rel=1e-3)
    assert reuse["ttft_s"]["max"] == pytest.approx(6.609)
    assert reuse["ttft_s"]["p95"] is None  # 40 turns cannot support it
    assert first["ttft_s"]["p90"] is None
    assert everything["tpot_s"]["mean"] == pytest.approx(0.0145, abs=1e-6)
    assert everything["output_tokens"] == 50 * OUTPUT
    assert summary["tiers"] == {
        "compute": everything["prompt_tokens"] - 40 * 139_776, "hbm": 0, "external": 40 * 139_776, "unknown": 0,
    }  # fmt: skip
    decode = 127 * 0.0145
    assert summary["total_s"] == pytest.approx(10 * (26.0045 + decode) + 40 * (6.6045 + decode), abs=0.01)
    assert summary["rate"]["output_tokens_s"] == pytest.approx(6400 / summary["total_s"])
    assert summary["rate"]["goodput"] is None  # no SLO was declared
    assert summary["sessions"]["n"] == 10
    assert summary["client"]["loop_lag_s"] == {"p50": 1e-4, "p99": 9e-4, "max": 1.5e-3}


def test_times_are_the_endpoints_seconds(make_run: MakeRun) -> None:
    plain = summarize(make_run(sweep(), name="plain"))
    fast = summarize(make_run(sweep(scale=20), name="fast", scale=20.0, simulated="blog"))
    for name in ("mean", "p50", "p90", "max"):
        assert fast["groups"]["reuse"]["ttft_s"][name] == pytest.approx(
            plain["groups"]["reuse"]["ttft_s"][name], rel=1e-3
        )
    assert fast["total_s"] == pytest.approx(plain["total_s"], rel=1e-3)
    assert fast["client"]["lag_s"] == plain["client"]["lag_s"]  # the client's own lag stays wall time


def test_a_failed_turn_is_censored_never_dropped(make_run: MakeRun) -> None:
    samples = list(sweep())
    for sample in samples[-6:]:
        sample.first_token_ns = sample.last_token_ns = sample.output_tokens = None
        sample.error = ErrorClass.TIMEOUT_FIRST_TOKEN
    summary = summarize(make_run(samples))
    reuse = summary["groups"]["reuse"]
    assert (reuse["turns"], reuse["errors"], reuse["censored"]) == (40, 6, 6)
    assert reuse["ttft_s"]["mean"] is None
    assert reuse["ttft_s"]["p50"] is not None
    assert reuse["ttft_s"]["p90"] is None  # rank 36 of 40 falls on a censored turn
    assert reuse["tpot_s"]["mean"] == pytest.approx(0.0145, abs=1e-6)
    assert [one["code"] for one in summary["reasons"]] == ["error_limit"]
    assert "timeout_first_token 6" in summary["reasons"][0]["detail"]


def test_absent_cached_tokens_is_null_not_zero(make_run: MakeRun) -> None:
    def forget(sample: Sample) -> None:
        sample.cached_tokens = None

    folder = make_run(edited(forget))
    assert summarize(folder)["groups"]["all"]["cached_tokens"] is None
    assert codes(folder) == ["cold_not_proven"]


def test_turns_that_were_never_sent_withhold_total_and_rates(make_run: MakeRun) -> None:
    folder = make_run(
        list(sweep())[:-3], plan=Plan(sessions=10, turns=50, turns_by_session={f"s{k}": 5 for k in range(10)})
    )
    summary = summarize(folder)
    assert summary["total_s"] is None
    assert summary["rate"]["output_tokens_s"] is None
    assert summary["sessions"]["cut"] == 3
    assert codes(folder) == ["sessions_cut"]


def test_truncated_sample_file_still_reports(make_run: MakeRun) -> None:
    folder = make_run(sweep())
    path = folder / "samples-w0.jsonl"
    path.write_bytes(path.read_bytes()[:-30])
    assert summarize(folder)["groups"]["all"]["turns"] == 49


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda s: setattr(s, "prompt_tokens", None), "usage_missing"),
        (lambda s: setattr(s, "prompt_tokens", s.prompt_tokens + 500), "prompt_drift"),
        (lambda s: setattr(s, "cached_tokens", 64), "cold_not_proven"),
        (lambda s: setattr(s, "client_delay_ns", 80_000_000), "send_late"),
    ],
)
def test_what_a_sample_shows(make_run: MakeRun, change: Callable[[Sample], None], expected: str) -> None:
    assert expected in codes(make_run(edited(change)))


def test_a_token_of_drift_is_accepted_and_a_declared_cold_limit_is_used(make_run: MakeRun) -> None:
    def shift(sample: Sample) -> None:
        assert sample.prompt_tokens is not None
        sample.prompt_tokens += 1
        sample.cached_tokens = 16

    assert codes(make_run(edited(shift), policy={"cold_limit_tokens": 16})) == []


def test_sessions_that_share_a_nonce_may_share_and_the_runs_first_prompt_must_be_cold(
    make_run: MakeRun,
) -> None:
    shared = {"policy": {"nonce": "run", "cold_limit_tokens": 16}}
    samples = list(sweep())
    for sample in samples[1:]:
        if sample.turn == 0:
            sample.cached_tokens = 120_000
    assert codes(make_run(samples, **shared)) == []
    samples[0].cached_tokens = 120_000  # left by an earlier run
    assert codes(make_run(samples, name="second", **shared)) == ["cold_not_proven"]


@pytest.mark.parametrize("scope", ["session", "run"])
def test_turns_that_were_cut_on_purpose_leave_the_proof_to_the_others(make_run: MakeRun, scope: str) -> None:
    def cut(sample: Sample) -> None:
        sample.finish, sample.prompt_tokens, sample.cached_tokens, sample.output_tokens = (
            "aborted",
            None,
            None,
            None,
        )

    samples = list(sweep())
    for sample in samples[:3]:
        cut(sample)
    policy = {"nonce": scope, "cold_limit_tokens": 16}
    assert codes(make_run(samples, policy=policy)) == []
    for sample in samples:
        if sample.turn == 0:
            cut(sample)
    assert codes(make_run(samples, name="all", policy=policy)) == ["cold_not_proven"]


def test_without_a_nonce_nothing_is_claimed_to_be_cold(make_run: MakeRun) -> None:
    warm = edited(lambda s: setattr(s, "cached_tokens", 1000))
    assert codes(make_run(warm, policy={"nonce": "none"})) == []


@pytest.mark.parametrize(
    ("client", "expected"),
    [
        ([], "client_unobserved"),
        ([client_line(final=False)], "missing_final"),
        ([client_line(cpu_share=0.97), client_line(cpu_share=0.99)], "client_saturated"),
        ([client_line(loop_lag_us={"p50": 1, "p99": 70_000, "max": 80_000, "n": 200})], "loop_lag"),
    ],
)
def test_what_the_client_shows(make_run: MakeRun, client: list[dict[str, object]], expected: str) -> None:
    assert codes(make_run(sweep(), client=client)) == [expected]


def test_coalesced_first_tokens_count_when_the_loop_was_late_enough_to_matter(make_run: MakeRun) -> None:
    """TTFT is 22 s: a lag of 0.5 s at that moment is nothing, one of 3 s is not, and an unwatched loop is not trusted."""
    late, end = MONO + 100 * SECOND, MONO + 10_000 * SECOND
    samples = edited(lambda s: setattr(s, "coalesced", True))

    def lines(lag_s: float) -> list[dict[str, object]]:
        lag = {"p50": 1, "p99": 900, "max": lag_s * 1e6, "n": 200}
        return [client_line(mono_ns=late, loop_lag_us=lag, final=False), client_line(mono_ns=end)]

    assert codes(make_run(samples, name="late", client=lines(3.0))) == ["coalesced_first_tokens"]
    assert codes(make_run(samples, name="punctual", client=lines(0.5))) == []
    assert codes(make_run(samples, name="unwatched", client=[client_line(mono_ns=MONO)])) == [
        "coalesced_first_tokens"
    ]
    detail = summarize(make_run(samples, name="again", client=lines(3.0)))["reasons"][0]["detail"]
    assert detail == "4 of 20 turns, at worst by 3000.0 ms, 13.6 %."  # only those of the first 100 s
    assert summarize(make_run(samples, name="more", client=lines(0.5)))["client"]["coalesced"] == 20


@pytest.mark.parametrize(("tpot_ms", "blamed"), [(2.0, True), (20.0, False)])
def test_a_sender_that_packs_tokens_is_not_the_clients_fault(
    make_run: MakeRun, tpot_ms: float, blamed: bool
) -> None:
    """TTFT is 40 ms and the loop up to 4 ms late, a tenth of it: enough to merge tokens 2 ms apart, never those 20 ms apart."""
    samples = edited(
        lambda s: setattr(s, "coalesced", True), first_s=0.04, reuse_s=0.04, tpot_s=tpot_ms / 1000
    )
    lag = {"p50": 100, "p99": 900, "max": 4000, "n": 200}
    client = [client_line(mono_ns=MONO + 1000 * SECOND, loop_lag_us=lag)]
    folder = make_run(samples, client=client)
    assert codes(folder) == (["coalesced_first_tokens"] if blamed else [])
    assert summarize(folder)["client"]["coalesced"] == 20  # counted all the same


def test_an_answer_in_one_packet_is_judged_by_the_other_turns(make_run: MakeRun) -> None:
    """A burst has no time between tokens of its own."""
    lag = {"p50": 100, "p99": 900, "max": 4000, "n": 200}
    client = [client_line(mono_ns=MONO + 1000 * SECOND, loop_lag_us=lag)]
    samples = edited(lambda s: None, first_s=0.04, reuse_s=0.04, tpot_s=0.02)
    for sample in samples[10:]:
        sample.coalesced = sample.burst = True
    assert codes(make_run(samples, name="some", client=client)) == []
    for sample in samples:
        sample.coalesced = sample.burst = True
    assert codes(make_run(samples, name="all", client=client)) == ["coalesced_first_tokens"]


@pytest.mark.parametrize(
    ("state", "expected"), [("running", "interrupted"), ("interrupted", "interrupted"), ("finished", None)]
)
def test_states(make_run: MakeRun, state: str, expected: str | None) -> None:
    assert codes(make_run(sweep(), state=state)) == ([expected] if expected else [])


def test_incidents_become_reasons_even_unknown_ones(make_run: MakeRun) -> None:
    folder = make_run(
        sweep(), incidents=[Incident(code="lost_worker", detail="w3"), Incident(code="odd", detail="x")]
    )
    assert codes(folder) == ["lost_worker", "odd"]


def test_every_code_has_a_sentence_and_a_remedy() -> None:
    for code in Code:
        one = reason(code)
        assert one.sentence.endswith(".")
        assert one.remedy.endswith(".")
    assert from_incident("lost_worker", "w1").sentence == reason(Code.LOST_WORKER).sentence


def test_build_leaves_everything_and_can_be_repeated(make_run: MakeRun) -> None:
    folder = make_run(sweep())
    build(folder)
    names = {path.name for path in folder.iterdir()}
    assert {"summary.json", "report.html", "turns.hlog"} <= names
    assert not [name for name in names if name.endswith(".tmp")]
    before = {name: (folder / name).read_bytes() for name in ("summary.json", "report.html", "turns.hlog")}
    for name in before:
        (folder / name).unlink()
    build(folder)
    assert before == {name: (folder / name).read_bytes() for name in before}
    assert json.loads(before["summary.json"]) == json.loads(msgspec.json.encode(summarize(folder)))
    assert read_run(folder).run == "run"


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="not a run folder"):
        build(tmp_path)


def test_turns_cut_as_recorded_do_not_blank_the_sums(make_run: MakeRun) -> None:
    samples = list(sweep(hit=139_776))
    for sample in samples[-3:]:
        sample.finish = "aborted"
        sample.prompt_tokens = sample.cached_tokens = sample.output_tokens = None
    summary = summarize(make_run(samples))
    everything = summary["groups"]["all"]
    assert (everything["turns"], everything["aborted"], everything["errors"]) == (50, 3, 0)
    assert everything["output_tokens"] == 47 * OUTPUT
    assert everything["cached_tokens"] == 37 * 139_776
    assert summary["rate"]["output_tokens_s"] == pytest.approx(47 * OUTPUT / summary["total_s"])
    table = {row.label: row.cells for row in rows([summary])}
    assert table["cut on purpose"] == ["3"]


def test_sources_that_nobody_told_are_not_zero(make_run: MakeRun) -> None:
    samples = list(sweep())
    for sample in samples:
        sample.tiers = None
    table = {row.label: row.cells[0] for row in rows([summarize(make_run(samples))])}
    assert [table[name] for name in ("computed", "from HBM", "from external")] == ["–"] * 3
    assert table["source unknown"].endswith("(100.0 %)")


def test_a_sweep_has_no_stall_share(make_run: MakeRun) -> None:
    shares = {
        kind: summarize(make_run(sweep(), name=kind, schedule={"kind": kind}))["sessions"]["stall_share"]
        for kind in ("sweep", "closed")
    }
    assert shares["sweep"] is None
    assert 0 < shares["closed"] < 1


def test_the_headline_of_an_invalid_run_says_so(make_run: MakeRun) -> None:
    good = summarize(make_run(sweep(), name="a"))
    bad = summarize(make_run(sweep(arm="on"), name="b", arm="on", client=[]))
    assert not headline([good]).startswith("Invalid")
    assert headline([bad]).startswith("Invalid: first token after")
    assert headline([good, bad]).startswith("Invalid (on): ")


def test_the_loop_after_the_last_turn_is_not_the_loop_that_measured(make_run: MakeRun) -> None:
    late = {"p50": 100, "p99": 900_000, "max": 900_000, "n": 40}
    last = client_line(mono_ns=MONO + 60 * SECOND, loop_lag_us=late)
    before = client_line(mono_ns=MONO, final=False)
    assert codes(make_run(sweep(), name="a", client=[before, last])) == []
    assert codes(make_run(sweep(), name="b", client=[before, last | {"final": False}, last])) == ["loop_lag"]
    assert codes(make_run(sweep(), name="c", client=[last])) == ["loop_lag"]  # it is all there is
