"""What loadgen counts is what the server counts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.lab.server import Lab, Run

pytestmark = pytest.mark.lab

SMALL = ("--sessions", "3", "--turns", "2", "--context-tokens", "900", "--output-tokens", "12")


def _agrees(run: Run, turns: int) -> None:
    assert len(run.samples) == turns, run.printed
    assert {sample["error"] for sample in run.samples} == {None}
    counted = run.counted
    succeeded = sum(value for name, value in counted.items() if name.startswith("request_success_total"))
    assert succeeded == turns
    assert counted["prompt_tokens_total"] == run.total("prompt_tokens")
    assert counted["generation_tokens_total"] == run.total("output_tokens")
    assert counted["prompt_tokens_cached_total"] == run.total("cached_tokens")
    assert counted["time_to_first_token_seconds_count"] == turns
    # A client sees a first token after the server has made it, never before.
    client_s = sum(sample["first_token_ns"] - sample["send_ns"] for sample in run.samples) / 1e9
    assert counted["time_to_first_token_seconds_sum"] <= client_s


@pytest.mark.parametrize("client", ["loadgen", "openai"])
@pytest.mark.parametrize("api", ["chat", "completions", "responses", "messages"])
def test_every_api_and_client(warm: Lab, tmp_path: Path, api: str, client: str) -> None:
    if (api, client) == ("messages", "openai"):
        pytest.skip("the openai SDK has no messages API")
    forced = () if api in ("chat", "completions") else ("--natural-output",)
    _agrees(warm.play(tmp_path / "run", *SMALL, "--api", api, "--client", client, *forced), 6)


@pytest.mark.parametrize(
    "schedule",
    [
        ("sweep",),
        ("sweep", "--width", "3"),
        ("closed", "-u", "2"),
        ("open", "--rate", "2"),
        ("closed", "-u", "2", "--processes", "2"),
        ("sweep", "--processes", "2"),
    ],
    ids=" ".join,
)
def test_every_schedule(warm: Lab, tmp_path: Path, schedule: tuple[str, ...]) -> None:
    _agrees(warm.play(tmp_path / "run", *SMALL, "--schedule", *schedule), 6)


def test_tiers_of_a_pool_that_overflows(warm: Lab, tmp_path: Path) -> None:
    run = warm.play(
        tmp_path / "run",
        "--sessions",
        "4",
        "--turns",
        "3",
        "--context-tokens",
        "6000",
        "--output-tokens",
        "8",
    )
    _agrees(run, 12)
    tiers = run.tiers()
    assert tiers["compute"] == run.counted["prompt_tokens_by_source_total:local_compute"]
    assert tiers["hbm"] == run.counted["prompt_tokens_by_source_total:local_cache_hit"]
    assert tiers["external"] == run.counted["prompt_tokens_by_source_total:external_kv_transfer"]
    reuse = [sample for sample in run.samples if sample["class"] == "reuse"]
    # LMCache keeps whole chunks of 256 tokens, so at most one of them is lost of what a turn could reuse.
    for sample in reuse:
        assert sample["expected_reuse"] - 256 < sample["cached_tokens"] <= sample["expected_reuse"]
    assert tiers["external"] > tiers["hbm"]


def test_turns_that_are_cut_are_aborted_there(warm: Lab, tmp_path: Path) -> None:
    # More tokens than the toy can make in the time that they get.
    run = warm.play(
        tmp_path / "run", "--sessions", "2", "--turns", "1", "--context-tokens", "900", "--output-tokens", "14000", "--turn-timeout", "1"
    )  # fmt: skip
    assert len(run.samples) == 2
    assert all(sample["error"] for sample in run.samples), run.printed
    ended = {n: v for n, v in run.counted.items() if n.startswith("request_success_total") and v}
    assert ended == {}
    assert run.counted["time_to_first_token_seconds_count"] == 2
    # No usage came, so chunks are what the client has; what was on its way when it hung up was generated too.
    assert 0 < run.total("chunks") <= run.counted["generation_tokens_total"]
