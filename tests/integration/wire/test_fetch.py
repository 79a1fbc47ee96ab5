"""Small requests beside the load, in a process of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from wire_faults import FaultServer, plain

ROOT = Path(__file__).resolve().parents[3]

SCRIPT = """
import json, sys
from loadgen.replay.wire.fetch import FetchError, get_json, get_text, post_json
from loadgen.replay.wire.target import Target
target, call = Target.parse(sys.argv[1]), sys.argv[2]
try:
    if call == "json": found = get_json(target, "/v1/models", headers=[("X-Script", "a")], timeout_s=1)
    if call == "text": found = get_text(target, "/metrics", headers=[("X-Script", "a")], timeout_s=1)
    if call == "post": found = post_json(target, "/tokenize", {"prompt": "x"}, headers=[("X-Script", "a")], timeout_s=1)
    print(json.dumps({"found": found}))
except FetchError as error:
    print(json.dumps({"words": str(error), "error": error.error, "status": error.status, "code": error.exit_code}))
"""


def fetch(server: FaultServer, call: str, answer: list[Any]) -> dict[str, Any]:
    server.scripts["a"] = answer
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, server.url, call],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_answers(server: FaultServer) -> None:
    assert fetch(server, "json", [plain("200 OK", b'{"data":[]}')]) == {"found": {"data": []}}
    assert fetch(server, "text", [plain("200 OK", "a 1\nü 2\n".encode())]) == {"found": "a 1\nü 2\n"}
    assert fetch(server, "post", [plain("200 OK", b'{"count":1}')]) == {"found": {"count": 1}}
    requests = [headers[":request"].split(" HTTP")[0] for headers, _ in server.seen]
    assert requests == ["GET /v1/models", "GET /metrics", "POST /tokenize"]
    assert json.loads(server.seen[2][1]) == {"prompt": "x"}


@pytest.mark.parametrize(
    ("call", "answer", "error", "words"),
    [
        ("json", [plain("200 OK", b"<html>")], "malformed", "did not answer with JSON"),
        ("json", [plain("404 Not Found", b'{"detail":"Not Found"}')], "http_4xx", "HTTP 404: Not Found"),
        ("text", ["hang"], "timeout_first_token", "not complete within 1 s"),
        ("text", [b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nabc", "close"], "truncated", "closed in mid-answer"),
    ],
)  # fmt: skip
def test_failures_are_one_sentence(
    server: FaultServer, call: str, answer: list[Any], error: str, words: str
) -> None:
    found = fetch(server, call, answer)
    assert found["error"] == error
    assert found["words"].startswith(server.url)
    assert words in found["words"]
    assert found["code"] == 2
