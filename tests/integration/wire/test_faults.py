"""Every fault of a server: its own error class, the right words, and no other sample harmed."""

from __future__ import annotations

import gzip
import time
from typing import Any

import pytest
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

SHORT = {"first_token_s": 0.4, "stall_s": 0.4, "total_s": 5.0}
TOKENS = [chunk(delta(role="assistant", content="")), chunk(delta(content=" a")), chunk(delta(content=" b"))]


def check_healthy(result: dict[str, Any], tokens: int = 3) -> None:
    assert result["error"] is None, result["message"]
    assert result["chunks"] == tokens
    assert result["usage"]["output_tokens"] == tokens
    assert result["finish"] == "length"
    names = ("send", "headers", "first_byte", "first_token", "last_token", "end")
    stamps = [result[f"{name}_ns"] for name in names if result[f"{name}_ns"] is not None]
    assert stamps == sorted(stamps)
    assert result["first_text_ns"] == result["first_token_ns"]
    if result["clock"] == "kernel":  # the openai SDK does not tell all of them
        assert len(stamps) == len(names)
        assert result["sent_ns"] >= result["send_ns"]


def play(driver: Any, server: FaultServer, script: list[Any], **turn: Any) -> dict[str, Any]:
    """Play a script between healthy streams on other connections, then a healthy one on the same connection."""
    server.scripts["fault"] = script
    fault = {"script": "fault", "connection": "f", "timeouts": SHORT, **turn}
    before, result, beside, after = driver.run(
        server.url, [{"connection": "a"}, fault, {"connection": "b"}], [{"connection": "f"}]
    )
    for other in (before, beside, after):
        check_healthy(other)
    return dict(result)


FAULTS: list[tuple[str, list[Any], ErrorClass, str]] = [
    ("never answers", ["hang"], ErrorClass.TIMEOUT_FIRST_TOKEN, "no answer at all"),
    ("headers and nothing more", [HEAD, "hang"], ErrorClass.TIMEOUT_FIRST_TOKEN, "headers, but no token"),
    ("role chunk and nothing more", [HEAD, TOKENS[0], "hang"], ErrorClass.TIMEOUT_FIRST_TOKEN, "headers, but no token"),
    ("pings only", [HEAD, *[chunk(b": ping\n\n"), 0.1] * 8], ErrorClass.TIMEOUT_FIRST_TOKEN, "headers, but no token"),
    ("stall after tokens", [HEAD, *TOKENS, "hang"], ErrorClass.TIMEOUT_STALL, "nothing new for 0.4 s, after 2 token events"),
    ("pings instead of tokens", [HEAD, *TOKENS, *[chunk(b": ping\n\n"), 0.1] * 8], ErrorClass.TIMEOUT_STALL, "nothing new"),
    ("no last chunk", [HEAD, *TOKENS, chunk(finish()), chunk(DONE), "hang"], ErrorClass.TIMEOUT_STALL, "nothing new"),
    ("one byte a time", [HEAD, *[step for byte in TOKENS[1] for step in (bytes([byte]), 0.02)]], ErrorClass.TIMEOUT_FIRST_TOKEN, ""),
    ("cut inside a chunk", [HEAD, *TOKENS, b"40\r\ndata: {\"cho", "close"], ErrorClass.TRUNCATED, "after 2 token events"),
    ("cut between chunks", [HEAD, *TOKENS, "close"], ErrorClass.TRUNCATED, "closed in mid-answer"),
    ("cut inside the head", [b"HTTP/1.1 200 OK\r\ncontent-ty", "close"], ErrorClass.TRUNCATED, "closed in mid-answer"),
    ("closed without an answer", ["close"], ErrorClass.RESET, "without an answer"),
    ("reset without an answer", [0.05, "reset"], ErrorClass.RESET, ""),
    ("reset under the stream", [HEAD, *TOKENS, 0.05, "reset"], ErrorClass.RESET, "reset"),
    ("no [DONE]", [HEAD, *TOKENS, chunk(finish()), chunk(usage(2)), LAST_CHUNK], ErrorClass.TRUNCATED, "without [DONE]"),
    ("no finish", [HEAD, *TOKENS, chunk(usage(2)), chunk(DONE), LAST_CHUNK], ErrorClass.TRUNCATED, "without a finish reason"),
    ("no usage", [HEAD, *TOKENS, chunk(finish()), chunk(DONE), LAST_CHUNK], ErrorClass.TRUNCATED, "without the usage"),
    ("half an event", [HEAD, *TOKENS, chunk(b'data: {"cho'), chunk(b""), LAST_CHUNK], ErrorClass.TRUNCATED, "inside an event"),
    ("error event at once", [HEAD, chunk(event({"error": {"message": "boom", "type": "Internal"}})), tail()], ErrorClass.STREAM_ERROR, "Internal: boom"),
    ("error event in mid-stream", [HEAD, *TOKENS, chunk(event({"error": {"message": "engine died"}})), tail()], ErrorClass.STREAM_ERROR, "engine died"),
    ("JSON instead of a stream", [plain("200 OK", b'{"error":{"message":"no"}}', "content-type: application/json")], ErrorClass.MALFORMED, "asked for a stream"),
    ("no JSON in an event", [HEAD, *TOKENS, chunk(b"data: {nope\n\n"), tail()], ErrorClass.MALFORMED, "not JSON"),
    ("a list in an event", [HEAD, chunk(b"data: [1]\n\n"), tail()], ErrorClass.MALFORMED, "not a JSON object"),
    ("no HTTP", [b"SSH-2.0-OpenSSH_9.6\r\n", "close"], ErrorClass.MALFORMED, "not valid HTTP"),
    ("a bad chunk size", [HEAD, b"zz\r\nhello\r\n", "close"], ErrorClass.MALFORMED, "not valid HTTP"),
    ("wrong usage: text", [HEAD, *TOKENS, chunk(finish()), chunk(usage(completion_tokens="many")), chunk(DONE), LAST_CHUNK], ErrorClass.MALFORMED, "no token count"),
    ("wrong usage: negative", [HEAD, *TOKENS, chunk(usage(-4)), tail()], ErrorClass.MALFORMED, "no token count"),
    ("wrong usage: cached > prompt", [HEAD, *TOKENS, chunk(usage(prompt_tokens_details={"cached_tokens": 11})), tail()], ErrorClass.MALFORMED, "11 cached prompt tokens of 10"),
    ("no token at all", [HEAD, TOKENS[0], chunk(delta(content="")), tail(0)], ErrorClass.EMPTY_OUTPUT, "no token"),
    ("gzip although identity", [plain("200 OK", gzip.compress(b"data"), "content-type: text/event-stream", "content-encoding: gzip")], ErrorClass.MALFORMED, "content-encoding gzip although identity"),
    ("429", [plain("429 Too Many Requests", b'{"error":{"message":"slow down"}}', "retry-after: 7")], ErrorClass.OVERLOADED, "slow down"),
    ("503", [plain("503 Service Unavailable", b"upstream is away")], ErrorClass.OVERLOADED, "upstream is away"),
    ("500", [plain("500 Internal Server Error", b'{"error":{"message":"oops"}}')], ErrorClass.HTTP_5XX, "HTTP 500: oops"),
    ("401", [plain("401 Unauthorized", b'{"detail":"no key"}')], ErrorClass.HTTP_4XX, "HTTP 401: no key"),
    ("a redirect", [plain("307 Temporary Redirect", b"", "location: /v2")], ErrorClass.HTTP_4XX, "redirects are not followed"),
    ("too long a prompt", [plain("400 Bad Request", b'{"error":{"message":"This model\'s maximum context length is 8 tokens."}}')], ErrorClass.CONTEXT_OVERFLOW, "maximum context length"),
    ("500 whose body never ends", [b"HTTP/1.1 500 Oops\r\ncontent-length: 99\r\n\r\nbroken", "hang"], ErrorClass.HTTP_5XX, "HTTP 500: broken"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "error", "words"), [f[1:] for f in FAULTS], ids=[f[0] for f in FAULTS])
def test_each_fault_has_its_class_and_harms_no_other(
    driver: Any, server: FaultServer, script: list[Any], error: ErrorClass, words: str
) -> None:
    result = play(driver, server, script)
    assert (result["error"], words in result["message"]) == (error, True), result["message"]
    assert result["send_ns"] > 0
    assert not result["stale"]


GOOD: list[tuple[str, list[Any], dict[str, Any]]] = [
    ("reasoning before text", [HEAD, chunk(delta(reasoning_content="hm")), 0.05, chunk(delta(content="yes")), 0.02, tail(9)], {"text": "yes", "reasoning": "hm"}),
    ("reasoning by its other name", [HEAD, chunk(delta(reasoning="hm")), 0.05, chunk(delta(content="yes")), 0.02, tail(9)], {"text": "yes", "reasoning": "hm"}),
    ("crlf separators", [HEAD, chunk(delta(b"\r\n", content="a")), 0.02, chunk(delta(b"\r\n", content="b") + finish(newline=b"\r\n") + usage(2, b"\r\n") + b"data: [DONE]\r\n\r\n"), LAST_CHUNK], {"text": "ab"}),
    ("comments and pings", [HEAD, chunk(b": hello\n\n"), chunk(b"event: ping\n\n"), chunk(delta(content="a")), chunk(b":\n\n: x\n"), chunk(delta(content="b")), tail(2)], {"text": "ab"}),
    ("empty deltas between", [HEAD, chunk(delta(role="assistant", content="")), chunk(delta()), 0.05, chunk(delta(content="")), chunk(delta(content="a")), chunk(delta(content="b")), tail(2)], {"text": "ab"}),
    ("several events in a packet", [HEAD + chunk(delta(content="a") + delta(content="b")) + tail(2)], {"text": "ab"}),
    ("an event in several packets", [HEAD, *[step for byte in chunk(delta(content="ab", role="x" * 9)) for step in (bytes([byte]), 0.001)], chunk(delta(content="")), tail(2)], {"text": "ab"}),
    ("an event in several chunks", [HEAD, *[chunk(bytes([byte])) for byte in delta(content="ab")], tail(2)], {"text": "ab"}),
    ("a content-length", [plain("200 OK", delta(content="ab") + finish() + usage(2) + DONE, "content-type: text/event-stream")], {"text": "ab"}),
    ("until the connection closes", [b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n", delta(content="ab") + finish() + usage(2) + DONE, "close"], {"text": "ab"}),
    ("100 Continue first", [b"HTTP/1.1 100 Continue\r\n\r\n", 0.02, HEAD, chunk(delta(content="ab")), tail(2)], {"text": "ab"}),
    ("extensions and trailers", [HEAD.replace(b"chunked\r\n", b"chunked\r\ntrailer: x-sum\r\n"), b"%x;sign=1\r\n%s\r\n" % (len(delta(content="ab")), delta(content="ab")), chunk(finish() + usage(2) + DONE), b"0\r\nx-sum: 1\r\n\r\n"], {"text": "ab"}),
    ("connection: close", [HEAD.replace(b"\r\n\r\n", b"\r\nconnection: close\r\n\r\n"), chunk(delta(content="ab")), tail(2), "close"], {"text": "ab"}),
]  # fmt: skip


@pytest.mark.parametrize(("script", "answer"), [g[1:] for g in GOOD], ids=[g[0] for g in GOOD])
def test_what_is_odd_and_allowed(
    driver: Any, server: FaultServer, script: list[Any], answer: dict[str, Any]
) -> None:
    result = play(driver, server, script)
    assert result["error"] is None, result["message"]
    assert result["answer"] | answer == result["answer"]
    assert result["clock"] == "kernel"


def test_text_after_reasoning_has_its_own_stamp(driver: Any, server: FaultServer) -> None:
    result = play(
        driver, server, [HEAD, chunk(delta(reasoning="hm")), 0.1, chunk(delta(content="yes")), 0.05, tail(9)]
    )
    assert result["first_text_ns"] - result["first_token_ns"] > 90_000_000
    assert result["last_token_ns"] == result["first_text_ns"]
    assert result["end_ns"] - result["last_token_ns"] > 40_000_000
    assert result["max_gap_ns"] == result["last_token_ns"] - result["first_token_ns"]


def test_tool_calls_only(driver: Any, server: FaultServer) -> None:
    call = {"index": 0, "id": "c1", "function": {"name": "bash", "arguments": ""}}
    script = [HEAD, chunk(delta(role="assistant", content=None)), 0.05, chunk(delta(tool_calls=[call]))]
    script += [0.05, chunk(delta(tool_calls=[{"index": 0, "function": {"arguments": '{"a":1}'}}])), tail(7)]
    result = play(driver, server, script)
    assert result["error"] is None
    assert result["chunks"] == 2
    assert result["first_token_ns"] - result["headers_ns"] > 45_000_000
    assert result["first_text_ns"] is None
    expected = {"id": "c1", "type": "function", "function": {"name": "bash", "arguments": '{"a":1}'}}
    assert result["answer"]["tool_calls"] == [expected]


@pytest.mark.parametrize("reported", [1, 200])
def test_more_or_fewer_tokens_than_asked_are_reported_as_they_came(
    driver: Any, server: FaultServer, reported: int
) -> None:
    result = play(driver, server, [HEAD, *TOKENS, 0.02, tail(reported)])
    assert result["error"] is None
    assert (result["usage"]["output_tokens"], result["chunks"]) == (reported, 2)


def test_absent_cached_tokens_are_none_and_not_zero(driver: Any, server: FaultServer) -> None:
    result = play(driver, server, healthy())
    assert result["usage"]["cached_tokens"] is None
    counted = [
        chunk(delta(content="a")),
        chunk(finish()),
        chunk(usage(1, prompt_tokens_details={"cached_tokens": 0})),
    ]
    result = play(driver, server, [HEAD, *counted, chunk(DONE), LAST_CHUNK])
    assert result["usage"]["cached_tokens"] == 0


def test_retry_after_is_kept_and_not_obeyed(driver: Any, server: FaultServer) -> None:
    began = time.monotonic()
    result = play(driver, server, [plain("429 Too Many Requests", b"{}", "Retry-After: 7")])
    assert result["retry_after_s"] == 7.0
    assert time.monotonic() - began < 5
    assert [h["x-script"] for h, _ in server.seen].count("fault") == 1


def test_an_early_refusal_of_a_large_body_is_read(driver: Any, server: FaultServer) -> None:
    body = b'{"error":{"message":"payload too large"}}'
    result = play(
        driver,
        server,
        ["early", plain("413 Content Too Large", body, "connection: close"), 0.2, "close"],
        bytes=8_000_000,
    )
    assert (result["error"], result["status"]) == (ErrorClass.HTTP_4XX, 413)


def test_a_server_that_does_not_read_the_body_times_out(driver: Any, server: FaultServer) -> None:
    result = play(driver, server, ["early", 1.0, "close"], bytes=30_000_000)
    assert (result["error"], result["sent_ns"]) == (ErrorClass.TIMEOUT_FIRST_TOKEN, None)
