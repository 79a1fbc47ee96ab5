"""Servers that end: a restart keeps the file tier, kill -9 in mid-sweep is told."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.lab.server import Counters, Lab, Run

pytestmark = pytest.mark.lab

# No nonce: the prompts of the second run are those of the first.
SAME = ("--sessions", "2", "--turns", "1", "--context-tokens", "6000", "--output-tokens", "8", "--nonce-scope", "none")  # fmt: skip


def test_file_tier_outlives_both_processes(warm: Lab, tmp_path: Path) -> None:
    cold = warm.play(tmp_path / "cold", *SAME)
    warm.up("lmcache")
    found = warm.play(tmp_path / "restarted", *SAME)
    assert cold.tiers()["external"] == 0
    tiers = found.tiers()
    assert tiers["hbm"] == 0
    assert tiers["external"] == found.counted["prompt_tokens_by_source_total:external_kv_transfer"] > 11_000


def test_kill_in_mid_sweep_is_reported(warm: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "run"
    process = warm.start(
        folder, "--sessions", "4", "--turns", "20", "--context-tokens", "6000", "--output-tokens", "64"
    )
    end = time.monotonic() + 120
    while time.monotonic() < end and len(Run(0, "", folder, Counters()).samples) < 6:
        time.sleep(0.2)
    warm.kill()
    printed, _ = process.communicate(timeout=180)
    warm.up("lmcache")
    assert "Traceback" not in printed
    assert process.returncode == 3, printed
    assert "INVALID" in printed
    samples = Run(3, printed, folder, Counters()).samples
    assert {sample["error"] for sample in samples[:6]} == {None}
    assert any(sample["error"] for sample in samples), printed
