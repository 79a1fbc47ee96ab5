from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import msgspec
import pytest

from loadgen import cli
from loadgen.errors import InputError
from loadgen.sizing import emit
from loadgen.sizing.models import KNOWN
from loadgen.sizing.plan import Assumptions, plan, round_robin_share

BLOG = Assumptions(
    context=140_000,
    tp=8,
    pool_gb_per_gpu=53,
    sessions=10,
    staging_gib_per_gpu=24,
    read_gb_s=10.948,
    cold_s=22,
    fixed_s=1.99,
    write_tax_s=4,
    new_contexts_per_day=1000,
)


def values(
    given: Assumptions = BLOG, model: str = "mistral-medium-3.5-128b", **changes: object
) -> dict[str, float | None]:
    return {f.key: f.value for f in plan(KNOWN[model], msgspec.structs.replace(given, **changes))}


def test_the_blog() -> None:
    found = values()
    assert found["kv_bytes_per_token"] == 360_448
    assert found["context_gb"] == pytest.approx(50.46, abs=0.005)
    assert found["context_gib_per_gpu"] == pytest.approx(5.87, abs=0.01)
    assert found["contexts_in_hbm"] == pytest.approx(8.40, abs=0.005)
    assert found["hits_vanish_at"] == 10
    assert found["contexts_in_hbm_with_staging"] == pytest.approx(4.32, abs=0.005)
    assert found["load_s"] == pytest.approx(4.61, abs=0.005)
    assert found["warm_s"] == pytest.approx(6.6, abs=0.005)
    assert found["breakeven_gb_s"] == pytest.approx(2.52, abs=0.01)
    assert found["breakeven_turns"] == pytest.approx(1.26, abs=0.005)
    assert found["breakeven_revisit"] == pytest.approx(0.26, abs=0.005)
    assert found["concurrent_loads"] == pytest.approx(4.3, abs=0.05)
    assert found["storage_gb_per_day"] == pytest.approx(50_463, abs=1)


@pytest.mark.parametrize(("sessions", "share"), [(8, 1.0), (9, 0.40), (10, 0.0)])
def test_round_robin_hits(sessions: int, share: float) -> None:
    assert values(sessions=sessions)["sessions_hit_share"] == pytest.approx(share, abs=0.005)


def test_the_staging_rule_is_twice_one_load() -> None:
    assert values(staging_gib_per_gpu=None)["staging_gib_per_gpu"] == 12
    assert values(staging_gib_per_gpu=None, context=262_144)["staging_gib_per_gpu"] == 22


def test_mla_is_copied_to_every_rank() -> None:
    found = values(model="deepseek-v3")
    assert found["contexts_in_hbm"] == pytest.approx(53 / 9.838, rel=1e-3)


def test_what_is_not_given_is_null_and_says_what_it_needs() -> None:
    figures = {f.key: f for f in plan(KNOWN["llama-3.1-8b"], Assumptions(context=1000))}
    assert figures["breakeven_gb_s"].value is None
    assert figures["breakeven_gb_s"].formula == "needs --cold-s, --fixed-s"
    assert figures["contexts_in_hbm"].formula == "needs --pool-gb-per-gpu"


def test_a_link_slower_than_break_even_never_pays() -> None:
    assert values(read_gb_s=2.5)["breakeven_turns"] is None
    assert (values(read_gb_s=2.6)["breakeven_turns"] or 0) > 1


@pytest.mark.parametrize(
    "changes", [{"context": 0}, {"tp": 0}, {"read_gb_s": 0.0}, {"cold_s": float("nan")}, {"write_tax_s": -1.0}, {"fixed_s": 30.0}, {"sessions": 0}]
)  # fmt: skip
def test_nonsense_is_refused(changes: dict[str, object]) -> None:
    with pytest.raises(InputError):
        values(**changes)


@pytest.mark.parametrize(
    ("version", "key"), [("0.3.15", "cufile_buffer_size"), ("0.4.3", "cufile_buffer_size"), ("0.4.4", "gds_buffer_size"), ("0.5.6", "gds_buffer_size")]
)  # fmt: skip
def test_the_buffers_key_follows_the_version(version: str, key: str) -> None:
    text = emit.lmcache_yaml(BLOG, 24, "/mnt/kv", version)
    assert f"\n{key}: 24576\n" in text
    assert "\nlocal_cpu: false\n" in text


def test_emitted_scripts_run_what_they_say(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [
        "size",
        "mistral-medium-3.5-128b",
        "--tp",
        "8",
        "--pool-gb-per-gpu",
        "53",
        "--gpu-memory-gib",
        "80",
    ]
    out = tmp_path / "arms"
    assert (
        cli.main(
            [*arguments, "--profile", "blog", "--emit", str(out), "--gds-path", "/mnt/o'brien", "--json"]
        )
        == 0
    )
    facts = json.loads(capsys.readouterr().out)
    assert facts["breakeven_turns"] == pytest.approx(1.26, abs=0.01)
    assert len(facts["files"]) == 4
    fake = tmp_path / "bin" / "vllm"
    fake.parent.mkdir()
    fake.write_text('#!/bin/bash\nprintf "%s\\n" "$@" "$PYTHONHASHSEED" "${LMCACHE_CONFIG_FILE:-none}"\n')
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{fake.parent}:{os.environ['PATH']}"}

    def words(name: str) -> list[str]:
        done = subprocess.run([str(out / name)], env=environment, capture_output=True, text=True, check=True)
        return done.stdout.splitlines()

    offload = words("offload.sh")
    assert (
        json.loads(offload[offload.index("--kv-transfer-config") + 1])["kv_connector"] == "LMCacheConnectorV1"
    )
    assert offload[-1] == str(out / "lmcache.yaml")
    assert offload[-2] == "0"
    off = words("off.sh")
    assert "--kv-transfer-config" not in off
    share = float(off[off.index("--gpu-memory-utilization") + 1])
    less = float(offload[offload.index("--gpu-memory-utilization") + 1])
    assert share - less == pytest.approx(facts["staging_gib_per_gpu"] / 80, abs=0.001)
    blocks = int(
        words("off-equal-pool.sh")[words("off-equal-pool.sh").index("--num-gpu-blocks-override") + 1]
    )
    assert blocks * 16 / 140_000 == pytest.approx(facts["contexts_in_hbm_with_staging"], abs=0.001)
    assert "gds_path: '/mnt/o''brien'" in (out / "lmcache.yaml").read_text()


def test_bad_arguments_exit_with_2(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    for more in (
        ["nope"],
        ["llama-3.1-8b", "--context", "0"],
        ["llama-3.1-8b", "--profile", "nope"],
        ["llama-3.1-8b", "--emit", str(tmp_path), "--lmcache-version", "new"],
        ["llama-3.1-8b", "--emit", str(tmp_path), "--gpu-memory-utilization", "3"],
        ["llama-3.1-8b", "--emit", str(tmp_path), "--gpu-memory-gib", "10", "--staging-gib-per-gpu", "60"],
        ["llama-3.1-8b", "--emit", "/proc/nowhere"],
    ):
        assert cli.main(["size", *more]) == 2
        assert capsys.readouterr().err.count("\n") == 1
    assert not list(tmp_path.iterdir())


def test_models_with_windows_get_the_same_layout_in_every_arm(tmp_path: Path) -> None:
    assert cli.main(["size", "gpt-oss-120b", "--pool-gb-per-gpu", "40", "--emit", str(tmp_path)]) == 0
    scripts = [path.read_text() for path in tmp_path.glob("*.sh")]
    assert len(scripts) == 3
    assert all("--disable-hybrid-kv-cache-manager" in script for script in scripts)


@pytest.mark.parametrize(
    ("resident", "sessions", "share"),
    [
        (8.4, 8, 1.0),
        (8.4, 9, 0.4),
        (8.4, 10, 0.0),
        (4.6, 5, 0.6),
        (4.6, 6, 0.0),
        (2.516, 3, 0.516),
        (0.5, 1, 0.5),
    ],
)
def test_residency_of_a_round_robin(resident: float, sessions: int, share: float) -> None:
    """The reference's table, and the partial hit measured on one H200 (72,256 of 140,000 tokens at C = 2.516)."""
    assert round_robin_share(resident, sessions) == pytest.approx(share)
