"""The doctor on a healthy endpoint and on every kind of ill one; over real sockets, without gevent."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake import Behaviour, endpoint

from loadgen.cli import main
from loadgen.doctor.checks import endpoint as endpoint_checks
from loadgen.doctor.checks import path, tier
from loadgen.doctor.examination import Choice, examine
from loadgen.doctor.finding import Finding, Status
from loadgen.doctor.patient import Patient
from loadgen.replay.endpoint import Api, discover
from loadgen.replay.rendering import Renderer
from loadgen.replay.wire.target import Target


def patient(url: str, **changes: Any) -> Patient:
    api = Api(Target.parse(url), None)
    facts = discover(api, None)
    return Patient(
        api=api, facts=facts, renderer=Renderer(api, facts.model), probe_tokens=600, timeout_s=10, **changes
    )


def findings(behaviour: Behaviour, *, probe_tier: bool = False, **changes: Any) -> dict[str, Finding]:
    with endpoint(behaviour) as url:
        return {f.check: f for f in examine(patient(url, **changes), Choice(probe_tier=probe_tier))}


def test_a_healthy_endpoint_has_no_complaint() -> None:
    found = findings(Behaviour(reset=True, tier="tag"), probe_tier=True)
    bad = {f.check: f.seen for f in found.values() if f.status in (Status.FAIL, Status.WARN)}
    bad.pop("tokenizer")  # the toy tokenizer is nobody's
    bad.pop("client timers", None)  # this machine may be busy
    bad.pop("buffering", None)
    bad.pop("tier", None)  # whether a load is faster is the machine's mood here; that it loaded is not
    assert bad == {}
    assert found["tier"].data["external_tokens"] > 500
    assert {
        "reachable",
        "context length",
        "metrics",
        "usage",
        "cached_tokens",
        "hbm",
        "tier",
        "tag",
        "skip_save",
    } <= set(found)


@pytest.mark.parametrize(
    ("behaviour", "check", "status", "word"),
    [
        (Behaviour(usage=False), "streaming", Status.FAIL, "usage"),
        (Behaviour(cached_tokens="never"), "cached_tokens", Status.WARN, "absent"),
        (Behaviour(cached_tokens="when-above-zero"), "cached_tokens", Status.OK, "absent means 0"),
        (Behaviour(prefix_cache=False), "cached_tokens", Status.WARN, "0 for a prompt"),
        (Behaviour(buffered=True), "buffering", Status.FAIL, "in one read"),
        (Behaviour(cut=True), "streaming", Status.FAIL, "truncated"),
        (Behaviour(free_length=True), "output length", Status.WARN, "5 tokens"),
        (Behaviour(refuse="ignore_eos"), "output length", Status.WARN, "refused"),
        (Behaviour(refuse="stream_options"), "streaming", Status.FAIL, "unknown field"),
        (Behaviour(metrics=False), "metrics", Status.WARN, "no /metrics"),
        (Behaviour(in_flight=3), "idle", Status.FAIL, "3 requests"),
        (Behaviour(replicas=2), "one replica", Status.FAIL, "2 different"),
        (Behaviour(tokenize=False), "tokenizer", Status.WARN, "no /tokenize"),
        (Behaviour(moves_tools=True), "template moves", Status.FAIL, "with a system prompt and tools"),
        (Behaviour(max_model_len=1000), "context length", Status.FAIL, "1,000"),
        (Behaviour(reset=True), "reset", Status.NOTE, "is there"),
    ],
)
def test_an_ill_endpoint_is_named(behaviour: Behaviour, check: str, status: Status, word: str) -> None:
    found = findings(behaviour)
    assert found[check].status is status, found[check]
    assert word in found[check].seen
    if status is not Status.OK:
        assert found[check].meaning


def controls(behaviour: Behaviour, **changes: Any) -> tuple[tier.Controls, dict[str, Finding]]:
    found = tier.Controls()
    with endpoint(behaviour) as url:
        return found, {f.check: f for f in tier.examine(patient(url, **changes), found)}


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tier, "_WAITS_S", (0.0, 0.0, 0.0))
    monkeypatch.setattr(path, "_DATE_GAP_S", 0.0)
    monkeypatch.setattr(path, "_NAPS", 20)
    monkeypatch.setattr(endpoint_checks, "_GAP_S", 0.0)


def test_a_connector_that_does_not_see_the_salt() -> None:
    found, said = controls(Behaviour(tier="tag"))
    assert (found.alive, found.salt_keeps_tier, found.tag_recomputes, found.skip_save) == (
        True,
        True,
        True,
        True,
    )
    assert said["tier"].data["external_tokens"] > 500


def test_a_connector_whose_keys_hold_the_salt_is_seen_once_hbm_is_empty() -> None:
    found, said = controls(Behaviour(tier="salt", reset=True))
    assert (found.alive, found.salt_keeps_tier) == (True, False)
    assert "does not reach it" in said["tier"].seen
    assert found.skip_save is True


def test_skip_save_is_tried_behind_an_emptied_hbm_too() -> None:
    found, said = controls(Behaviour(tier="salt", reset=True, honours_skip_save=False))
    assert found.skip_save is False
    assert "external" in said["skip_save"].seen


def test_without_a_way_to_empty_hbm_nothing_is_claimed() -> None:
    found, said = controls(Behaviour(tier="salt"))
    assert found.alive is None
    assert said["tier"].status is Status.NOTE
    assert "--evict" in said["tier"].remedy


@pytest.mark.parametrize("tier_keys", ["tag", None])
def test_a_server_that_ignores_salts_is_not_taken_for_a_tier(tier_keys: str | None) -> None:
    found, said = controls(Behaviour(tier=tier_keys, ignores_salt=True))
    assert found.alive is None
    assert said["cache_salt"].data["ignored"] is True
    found, _ = controls(Behaviour(tier=tier_keys, ignores_salt=True, reset=True))
    assert found.alive is (tier_keys is not None)


def test_a_hit_from_nobody_knows_where_proves_no_tier() -> None:
    found, said = controls(Behaviour(tier="tag", metrics=False))
    assert found.alive is None
    assert said["tier"].status is Status.SKIP


def test_no_tier_is_no_tier() -> None:
    found, said = controls(Behaviour(reset=True))
    assert found.alive is False
    assert "No tier answers" in said["tier"].meaning


def test_skip_save_that_is_ignored_is_not_used() -> None:
    found, said = controls(Behaviour(tier="tag", honours_skip_save=False))
    assert found.skip_save is False
    assert "ignored" in said["skip_save"].meaning


def test_an_endpoint_that_refuses_salts() -> None:
    found, said = controls(Behaviour(refuse="cache_salt"))
    assert found.alive is None
    assert said["tier"].status is Status.SKIP
    assert "unknown field" in said["tier"].seen


def test_a_prefix_cache_that_is_off_is_said() -> None:
    _, said = controls(Behaviour(prefix_cache=False))
    assert said["hbm"].status is Status.WARN


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    with endpoint(Behaviour()) as url:
        assert main(["doctor", "--host", url + "/v1", "--probe-tokens", "300", "--json"]) == 0
        result = json.loads(capsys.readouterr().out)
        assert result["worst"] == "warn"
        assert {"check", "status", "seen", "meaning", "remedy", "data"} == set(result["findings"][0])
        assert main(["doctor", "--host", url, "--no-tier"]) == 0
        text = capsys.readouterr().out
        assert "reachable" in text
        assert "→" in text
    with endpoint(Behaviour(in_flight=1)) as url:
        assert main(["doctor", "--host", url, "--no-tier", "--json"]) == 3


@pytest.mark.parametrize(
    "words",
    [
        ["--host", "http://127.0.0.1:9"],
        ["--host", "ftp://x"],
        ["--host", "http://user:secret@127.0.0.1"],
        ["--host", "http://127.0.0.1:9", "--probe-tokens", "1"],
        ["--host", "http://127.0.0.1:9", "--timeout", "0"],
        ["--host", "http://127.0.0.1:9", "--off-host", "http://127.0.0.1:9"],
        ["--host", "http://127.0.0.1:9", "--no-tier", "--taxes"],
    ],
)
def test_mistakes_end_in_one_sentence(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", *words]) == 2
    errors = capsys.readouterr().err
    assert errors.startswith("loadgen: ")
    assert "Traceback" not in errors
    assert "secret" not in errors


@pytest.mark.parametrize("models", [{"data": []}, {"data": "x"}, [], {"object": "error"}])
def test_an_endpoint_that_is_none(models: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with endpoint(Behaviour(models=models)) as url:
        assert main(["doctor", "--host", url]) == 2
    assert "Traceback" not in capsys.readouterr().err
