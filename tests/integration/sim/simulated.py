"""Simulated endpoints as real processes, fast enough for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx2 as httpx

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples" / "vllm"


@dataclass
class Server:
    url: str
    model: str
    process: subprocess.Popen[bytes]

    def post(self, path: str, body: Any, **more: Any) -> httpx.Response:
        return httpx.post(self.url + path, json=body, timeout=30, **more)

    def chat(self, text: str, **more: Any) -> dict[str, Any]:
        body = {"model": self.model, "messages": [{"role": "user", "content": text}], **more}
        answer = self.post("/v1/chat/completions", body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def metric(self, name: str, **labels: str) -> float:
        from prometheus_client.parser import text_string_to_metric_families

        text = httpx.get(self.url + "/metrics", timeout=10).text
        found = [
            sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
        assert len(found) == 1, f"{name}{labels}: {len(found)} samples"
        return found[0]


def start(*arguments: str) -> Server:
    command = [sys.executable, "-m", "loadgen", "sim", "--port", "0", "--json", *arguments]
    process = subprocess.Popen(command, stdout=subprocess.PIPE)
    assert process.stdout is not None
    facts = json.loads(process.stdout.readline())
    return Server(facts["url"], facts["model"], process)


def stop(server: Server) -> int:
    server.process.terminate()
    return server.process.wait(10)
