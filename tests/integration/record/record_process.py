"""`loadgen record` as a process, for tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
KEY = "sk-test-0123456789abcdefABCDEF"


class Recorder:
    """`loadgen record` as a process. `stop` ends it and keeps its summary."""

    def __init__(self, upstream: str, out: Path, *options: str, **popen: Any) -> None:
        self.out = out
        self.calls = out.with_name(out.name.removesuffix(".jsonl") + ".calls.jsonl")
        command = [
            sys.executable,
            "-m",
            "loadgen",
            "record",
            "--upstream",
            upstream,
            "-o",
            str(out),
            "--json",
            *options,
        ]
        self.process = subprocess.Popen(
            command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **popen
        )
        assert self.process.stdout is not None
        first = self.process.stdout.readline()
        assert first, self.process.stderr.read() if self.process.stderr else ""
        self.url: str = json.loads(first)["url"]
        self.summary: dict[str, Any] = {}
        self.errors = ""

    def stop(self, number: int = signal.SIGINT) -> dict[str, Any]:
        if self.process.poll() is None:
            self.process.send_signal(number)
        out, self.errors = self.process.communicate(timeout=30)
        if out:
            self.summary = json.loads(out.splitlines()[-1])
        return self.summary

    def kill(self) -> None:
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.communicate(timeout=30)

    def journal(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.calls.read_text().splitlines()]

    def records(self, kind: str) -> list[dict[str, Any]]:
        lines = (json.loads(line) for line in self.out.read_text().splitlines())
        return [line for line in lines if line["type"] == kind]
