"""The openai SDK as a second client: the same answers, the same classes of errors, and a clock that says what it is."""

from __future__ import annotations

import json
from typing import Any

import pytest
from test_faults import SHORT, check_healthy
from wire_faults import (
    DONE,
    HEAD,
    LAST_CHUNK,
    FaultServer,
    chunk,
    delta,
    event,
    finish,
    healthy,
    plain,
    tail,
    usage,
)

from loadgen.measure.sample import ErrorClass

TOKENS = [chunk(delta(role="assistant", content="")), chunk(delta(content=" a")), chunk(delta(content=" b"))]


def test_both_clients_see_the_same(driver: Any, server: FaultServer) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": "{}"}}
    server.scripts["rich"] = [
        HEAD,
        chunk(delta(reasoning_content="hm")),
        0.02,
        chunk(delta(content="so")),
        0.02,
    ]
    server.scripts["rich"] += [chunk(delta(tool_calls=[call])), 0.02, tail(7)]
    (ours,) = driver.run(server.url, [{"script": "rich"}])
    (theirs,) = driver.run(
        server.url, [{"script": "rich"}], client="openai", headers=[["Authorization", "Bearer k1"]]
    )
    for name in ("error", "answer", "usage", "finish", "chunks", "first_event_tokens", "status"):
        assert ours[name] == theirs[name], name
    assert (ours["clock"], theirs["clock"]) == ("kernel", "loop")
    assert theirs["first_token_ns"] <= theirs["first_text_ns"] <= theirs["last_token_ns"] <= theirs["end_ns"]
    (ours_headers, ours_body), (theirs_headers, theirs_body) = server.seen
    assert theirs_headers["authorization"] == "Bearer k1"
    assert theirs_headers["accept-encoding"] == "identity"
    assert json.loads(ours_body) == json.loads(theirs_body)
    assert ours_headers[":request"] == theirs_headers[":request"]


@pytest.mark.parametrize(
    ("script", "error", "words"),
    [
        ([HEAD, *TOKENS, "hang"], ErrorClass.TIMEOUT_STALL, "nothing to read"),
        (["hang"], ErrorClass.TIMEOUT_FIRST_TOKEN, "nothing to read"),
        ([HEAD, *TOKENS, "close"], ErrorClass.TRUNCATED, ""),
        (["close"], ErrorClass.RESET, ""),
        ([HEAD, *TOKENS, chunk(finish()), chunk(DONE), LAST_CHUNK], ErrorClass.TRUNCATED, "without the usage"),
        ([HEAD, TOKENS[0], tail(0)], ErrorClass.EMPTY_OUTPUT, "no token"),
        ([HEAD, *TOKENS, chunk(event({"error": {"message": "engine died"}})), tail()], ErrorClass.STREAM_ERROR, "engine died"),
        ([HEAD, *TOKENS, chunk(b"data: {nope\n\n"), tail()], ErrorClass.MALFORMED, "not JSON"),
        ([HEAD, *TOKENS, chunk(usage(-4)), tail()], ErrorClass.MALFORMED, "no token count"),
        ([plain("429 Too Many Requests", b'{"error":{"message":"slow down"}}', "retry-after: 7")], ErrorClass.OVERLOADED, "slow down"),
        ([plain("500 Oops", b'{"error":{"message":"oops"}}')], ErrorClass.HTTP_5XX, "HTTP 500: oops"),
    ],
)  # fmt: skip
def test_faults(driver: Any, server: FaultServer, script: list[Any], error: ErrorClass, words: str) -> None:
    server.scripts["fault"] = script
    result, other = driver.run(server.url, [{"script": "fault", "timeouts": SHORT}, {}], client="openai")
    assert (result["error"], words in result["message"]) == (error, True), result
    check_healthy(other)
    assert len(server.seen) == 2  # no hidden retry


def test_abort(driver: Any, server: FaultServer) -> None:
    server.scripts["long"] = [HEAD, chunk(delta(content="a")), "hang"]
    aborted, other, after = driver.run(
        server.url, [{"script": "long", "abort_after_s": 0.2}, {}], [{}], client="openai"
    )
    assert (aborted["error"], aborted["chunks"]) == (ErrorClass.CANCELLED, 1)
    check_healthy(other)
    check_healthy(after)
    assert server.aborted == ["long"]


def test_nobody_listens(driver: Any, server: FaultServer) -> None:
    server.close()
    (result,) = driver.run("http://127.0.0.1:1", [{}], client="openai")
    assert (result["error"], result["send_ns"]) == (ErrorClass.CONNECT, 0)


@pytest.mark.parametrize("api", ["completions", "responses"])
def test_other_apis(driver: Any, server: FaultServer, api: str) -> None:
    if api == "completions":
        events = [{"choices": [{"index": 0, "text": " a", "finish_reason": None}]}, {"choices": [{"index": 0, "text": "b", "finish_reason": "length"}]}]  # fmt: skip
        body = b"".join(map(event, events)) + usage(2) + DONE
    else:
        counts = {"input_tokens": 4, "output_tokens": 2, "total_tokens": 6, "input_tokens_details": {"cached_tokens": 1}, "output_tokens_details": {"reasoning_tokens": 0}}  # fmt: skip
        response = {"id": "r", "object": "response", "status": "completed", "output": [], "usage": counts}
        steps = [
            {"type": "response.output_text.delta", "delta": d, "sequence_number": n}
            for n, d in enumerate((" a", "b"))
        ]
        events = [*steps, {"type": "response.completed", "response": response, "sequence_number": 9}]
        body = b"".join(b"event: " + e["type"].encode() + b"\n" + event(e) for e in events)  # type: ignore[attr-defined]
    server.scripts["api"] = [HEAD, chunk(body), LAST_CHUNK]
    (ours,) = driver.run(server.url, [{"script": "api", "api": api}])
    (theirs,) = driver.run(server.url, [{"script": "api", "api": api}], client="openai")
    for name in ("error", "finish", "chunks"):
        assert ours[name] == theirs[name], (name, theirs)
    assert ours["answer"]["text"] == theirs["answer"]["text"] == " ab"
    for name in ("prompt_tokens", "cached_tokens", "output_tokens"):
        assert ours["usage"][name] == theirs["usage"][name]


def test_messages_are_not_the_sdks(driver: Any, server: FaultServer) -> None:
    server.scripts["healthy"] = healthy()
    (result,) = driver.run(server.url, [{"api": "messages"}], client="openai")
    assert "InputError" in result["raised"]
