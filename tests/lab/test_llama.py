"""llama.cpp's server: other words for counting, another cache (to the token), no TTFT of its own."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.server import SCRIPTS

pytestmark = pytest.mark.lab

PORT = 8090
URL = f"http://127.0.0.1:{PORT}"


@pytest.fixture(scope="module")
def llama() -> Iterator[str]:
    folder = os.environ.get("LAB")
    if not folder or not (Path(folder) / "llama" / "build" / "bin" / "llama-server").exists():
        pytest.skip("LAB does not name a folder in which lab/cpu/llama.sh built the server")
    environment = {**os.environ, "PORT": str(PORT)}
    subprocess.run(["bash", str(SCRIPTS / "llama.sh")], check=True, env=environment, timeout=120)
    yield URL
    os.kill(int((Path(folder) / "run" / "llama.pid").read_text()), 15)


def counters() -> dict[str, float]:
    with urllib.request.urlopen(f"{URL}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    return {name: float(value) for name, value in re.findall(r"^llamacpp:(\w+) (\S+)$", text, re.M)}


@pytest.mark.parametrize("api", ["chat", "completions", "responses", "messages"])
def test_counts_of_every_api(llama: str, tmp_path: Path, api: str) -> None:
    before = counters()
    command = [sys.executable, "-m", "loadgen", "run", "--host", llama, "--tokenizer", "server", "--api", api]
    command += ["--sessions", "3", "--turns", "4", "--context-tokens", "3000", "--output-tokens", "12"]
    done = subprocess.run(
        [*command, "--run-dir", str(tmp_path / "run")],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode in (0, 3), done.stdout + done.stderr  # 3: first tokens coalesced on a busy machine
    told = {
        reason["code"] for reason in json.loads((tmp_path / "run" / "summary.json").read_text())["reasons"]
    }
    assert told <= {"coalesced_first_tokens", "loop_lag"}, done.stdout
    samples = [
        json.loads(line)
        for file in (tmp_path / "run").glob("samples-*.jsonl")
        for line in file.read_text().splitlines()
    ]
    assert [sample["error"] for sample in samples] == [None] * 12
    counted = {name: value - before[name] for name, value in counters().items()}
    total = {
        name: sum(sample[name] for sample in samples)
        for name in ("prompt_tokens", "cached_tokens", "output_tokens")
    }
    assert counted["prompt_tokens_cached_total"] == total["cached_tokens"]
    assert counted["prompt_tokens_total"] == total["prompt_tokens"] - total["cached_tokens"]
    assert counted["tokens_predicted_total"] == total["output_tokens"]
    for sample in samples:
        assert sample["prompt_tokens"] == sample["target_tokens"]
        if sample["class"] == "reuse":
            assert sample["cached_tokens"] == sample["expected_reuse"], "it caches to the token"
