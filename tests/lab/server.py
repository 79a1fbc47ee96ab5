"""The lab's servers, what they count, and loadgen run against them."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCRIPTS = Path(__file__).resolve().parents[2] / "lab" / "cpu"
URL = "http://127.0.0.1:8000"
# 128 tokens each: two prompts of 6,000 tokens and a bit
POOL_BLOCKS = 120
_LINE = re.compile(r"^(vllm:\w+)(?:\{([^}]*)\})? (\S+)$")


class Counters(dict[str, float]):
    """vLLM's counters; the key of a labelled one is `name:value of its own label`."""

    @classmethod
    def read(cls) -> Counters:
        with urllib.request.urlopen(f"{URL}/metrics", timeout=10) as answer:
            text = answer.read().decode()
        found: dict[str, float] = defaultdict(float)
        for line in text.splitlines():
            if match := _LINE.match(line):
                name, labels, value = match.groups()
                own = [
                    each
                    for each in (labels or "").split(",")
                    if not each.startswith(("engine=", "model_name="))
                ]
                if any(each.startswith("le=") for each in own):
                    continue
                tail = ":" + own[0].split("=")[1].strip('"') if own and own[0] else ""
                found[name.removeprefix("vllm:") + tail] += float(value)
        return cls(found)

    def since(self, before: Mapping[str, float]) -> Counters:
        return Counters({name: value - before.get(name, 0.0) for name, value in self.items()})


@dataclass
class Run:
    """One run as it ended: exit code, what was printed, samples, summary, and what the server counted meanwhile."""

    code: int
    printed: str
    folder: Path
    counted: Counters

    @property
    def samples(self) -> list[dict[str, Any]]:
        return [
            json.loads(line)
            for file in sorted(self.folder.glob("samples-*.jsonl"))
            for line in file.read_text().splitlines()
        ]

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads((self.folder / "summary.json").read_text())
        return found

    def total(self, field: str) -> int:
        return sum(sample[field] or 0 for sample in self.samples)

    def tiers(self) -> dict[str, int]:
        found: dict[str, int] = defaultdict(int)
        for sample in self.samples:
            for tier, tokens in (sample["tiers"] or {}).items():
                found[tier] += tokens
        return found


class Lab:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def up(self, arm: str, *, fresh: bool = False) -> None:
        self.down()
        if fresh:
            shutil.rmtree(self.folder / "kv", ignore_errors=True)
        self._script("up.sh", arm)

    def down(self) -> None:
        self._script("down.sh")

    def kill(self) -> None:
        """kill -9 of the whole server."""
        os.killpg(int((self.folder / "run" / "vllm.pid").read_text()), signal.SIGKILL)

    def _script(self, name: str, *arguments: str) -> None:
        subprocess.run(
            ["bash", str(SCRIPTS / name), *arguments],
            check=True,
            timeout=400,
            stdout=subprocess.DEVNULL,
            env={
                **os.environ,
                "LAB": str(self.folder),
                "KV_BLOCKS": str(POOL_BLOCKS),
                "MAX_LEN": str(128 * (POOL_BLOCKS - 1)),
            },
        )

    def start(self, folder: Path, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "loadgen", "run", "--host", URL, "--tokenizer", "server"]
        return subprocess.Popen(
            [*command, "--run-dir", str(folder), *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={**os.environ, "OPENAI_API_KEY": "none"},
        )

    def play(self, folder: Path, *options: str) -> Run:
        before = Counters.read()
        process = self.start(folder, *options)
        printed, _ = process.communicate(timeout=300)
        assert "Traceback" not in printed, printed
        idle()
        return Run(process.returncode, printed, folder, Counters.read().since(before))


def idle(limit_s: float = 30) -> None:
    """Wait until the server has let go of every request and its counters have settled."""
    end = time.monotonic() + limit_s
    last: Counters | None = None
    while time.monotonic() < end:
        now = Counters.read()
        if not now["num_requests_running"] and not now["num_requests_waiting"] and now == last:
            return
        last = now
        time.sleep(0.3)
    raise AssertionError(f"the server is still busy after {limit_s} s")
