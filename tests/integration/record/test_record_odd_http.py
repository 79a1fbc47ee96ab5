"""Bad and unusual HTTP: the agent sees what it would have seen, the recorder says what it saw."""

from __future__ import annotations

import gzip
import http.client
import json
import socket
import time
import zlib
from collections.abc import Callable

import brotli
import pytest
import zstandard
from record_process import Recorder
from record_raw import RawServer, post, talk
from record_upstream import Say, Upstream

Start = Callable[..., Recorder]
ASK = json.dumps({"model": "m", "messages": [{"role": "user", "content": "hi there"}]}).encode()
ASK_STREAM = json.dumps(
    {"model": "m", "stream": True, "messages": [{"role": "user", "content": "hi there"}]}
).encode()
CHUNKS = [
    b'data: {"id":"c","choices":[{"index":0,"delta":{"role":"assistant","content":""}}]}\n\n',
    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":"good"}}]}\n\n',
    b'data: {"id":"c","choices":[{"index":0,"delta":{"content":" day"},"finish_reason":"stop"}]}\n\n',
    b'data: {"id":"c","choices":[],"usage":{"prompt_tokens":5,"completion_tokens":2}}\n\n',
    b"data: [DONE]\n\n",
]
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"


def chunk(data: bytes, extension: bytes = b"") -> bytes:
    return f"{len(data):x}".encode() + extension + b"\r\n" + data + b"\r\n"


def exchange(
    url: str, body: bytes = ASK_STREAM, *headers: tuple[str, str]
) -> tuple[int, http.client.HTTPMessage, bytes]:
    connection = http.client.HTTPConnection(url.removeprefix("http://"), timeout=20)
    connection.request(
        "POST", "/v1/chat/completions", body, {"Content-Type": "application/json", **dict(headers)}
    )
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response.status, response.headers, data


def test_chunk_extensions_trailers_and_split_events(recorder: Start) -> None:
    def play(connection: socket.socket, _request: bytes) -> None:
        connection.sendall(HEAD + b"\r\n")
        stream = b"".join(CHUNKS)
        for start in range(0, len(stream), 37):
            connection.sendall(chunk(stream[start : start + 37], b";name=value"))
            time.sleep(0.002)
        connection.sendall(b"0\r\nX-Trailer: t\r\n\r\n")

    with RawServer(play) as up:
        record = recorder(up.url)
        status, _, body = exchange(record.url)
        record.stop()
    assert (status, body) == (200, b"".join(CHUNKS))
    (turn,) = record.records("turn")
    assert turn["answer"] == {"role": "assistant", "content": "good day"}
    assert (turn["input_tokens"], turn["output_tokens"], turn["stop"]) == (5, 2, "stop")
    assert turn["seen"]["ttft_s"] <= turn["seen"]["e2e_s"]


ENCODERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "deflate": zlib.compress,
    "br": brotli.compress,
    "zstd": zstandard.ZstdCompressor().compress,
}


@pytest.mark.parametrize("encoding", ENCODERS)
def test_compressed_both_ways(encoding: str, recorder: Start) -> None:
    packed = ENCODERS[encoding](b"".join(CHUNKS))
    packed_request = ENCODERS[encoding](ASK_STREAM)

    def play(connection: socket.socket, _request: bytes) -> None:
        connection.sendall(HEAD + f"Content-Encoding: {encoding}\r\n\r\n".encode())
        for start in range(0, len(packed), 20):
            connection.sendall(chunk(packed[start : start + 20]))
        connection.sendall(b"0\r\n\r\n")

    with RawServer(play) as up:
        record = recorder(up.url)
        _, headers, body = exchange(record.url, packed_request, ("Content-Encoding", encoding))
        record.stop()
        assert up.requests[0].endswith(packed_request)
    assert body == packed
    assert headers["Content-Encoding"] == encoding
    (turn,) = record.records("turn")
    assert turn["append"] == [{"role": "user", "content": "hi there"}]
    assert turn["answer"]["content"] == "good day"


def test_upstream_breaks_in_mid_stream(recorder: Start) -> None:
    def play(connection: socket.socket, _request: bytes) -> None:
        connection.sendall(HEAD + b"\r\n" + chunk(CHUNKS[0]) + chunk(CHUNKS[1]))
        time.sleep(0.05)
        connection.close()

    with RawServer(play) as up:
        record = recorder(up.url)
        for url in (up.url, record.url):
            with pytest.raises((http.client.IncompleteRead, ConnectionError)) as caught:
                exchange(url)
            if isinstance(caught.value, http.client.IncompleteRead):
                assert b"good" in caught.value.partial
        record.stop()
    (turn,) = record.records("turn")
    assert (turn["stop"], turn["answer"]["content"]) == ("truncated", "good")
    assert record.journal()[0]["ending"] == "upstream_abort"


def test_tls_that_fails_is_a_broken_connection(recorder: Start) -> None:
    with Upstream(lambda seen: Say("x")) as up:  # speaks no TLS
        record = recorder(up.url.replace("http:", "https:"))
        with pytest.raises((http.client.RemoteDisconnected, ConnectionError)):
            exchange(record.url)
        record.stop()
    (line,) = record.journal()
    assert line["ending"] == "upstream_unreachable"
    assert "ssl" in line["problems"][0].lower()


def test_silence_before_the_answer_and_a_client_that_leaves(recorder: Start) -> None:
    with RawServer(lambda connection, _request: time.sleep(0.3)) as up:
        record = recorder(up.url)
        host, port = record.url.removeprefix("http://").split(":")
        with socket.create_connection((host, int(port))) as connection:
            connection.sendall(post("/v1/chat/completions", ASK))
            while not up.requests:
                time.sleep(0.01)
        assert up.disconnected.wait(10)
        record.stop()
    (turn,) = record.records("turn")
    assert turn["stop"] == "aborted"
    assert "answer" not in turn
    assert record.journal()[0]["ending"] == "client_abort"


def test_client_leaves_in_mid_upload(recorder: Start) -> None:
    with Upstream(lambda seen: Say("never")) as up:
        record = recorder(up.url)
        talk(record.url, post("/v1/chat/completions", ASK)[:-10], read=False)
        deadline = time.monotonic() + 20
        while not record.journal() and time.monotonic() < deadline:
            time.sleep(0.02)
        assert exchange(record.url)[0] == 200
        record.stop()
    endings = [line["ending"] for line in record.journal()]
    assert endings == ["client_abort", "complete"]
    assert len(record.records("turn")) == 1


def test_http_1_0_pipelining_and_half_close(recorder: Start) -> None:
    with Upstream(lambda seen: Say("pleased")) as up:
        record = recorder(up.url)
        old = talk(record.url, post("/v1/chat/completions", ASK).replace(b"HTTP/1.1", b"HTTP/1.0"))
        assert old.startswith(b"HTTP/1.0 200 ")
        assert b"pleased" in old
        assert b"chunked" not in old.lower()
        twice = talk(
            record.url,
            post("/v1/chat/completions", ASK) + post("/v1/chat/completions", ASK, "Connection: close"),
        )
        assert twice.count(b"HTTP/1.1 200 OK") == 2
        for url in (up.url, record.url):  # the proxy behaves as servers of this kind do
            assert talk(url, post("/v1/chat/completions", ASK), half_close=True) == b""
        record.stop()
    assert record.summary["turns"] >= 3


def test_chunked_upload_with_extensions_and_expect_continue(recorder: Start) -> None:
    with Upstream(lambda seen: Say("got it")) as up:
        record = recorder(up.url)
        head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n"
        body = chunk(ASK[:10], b";ext=1") + chunk(ASK[10:]) + b"0\r\n\r\n"
        assert b"got it" in talk(record.url, head + b"\r\n" + body)
        expecting = talk(record.url, head + b"Expect: 100-continue\r\n\r\n" + body)
        assert expecting.startswith(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK")
        record.stop()
        assert [seen.body for seen in up.seen] == [ASK, ASK]
    assert record.summary["turns"] == 2


def test_100_mb_body_passes_and_is_said_not_to_be_recorded(recorder: Start) -> None:
    text = "x" * 100_000_000
    body = json.dumps({"model": "m", "messages": [{"role": "user", "content": text}]}).encode()
    with Upstream(lambda seen: Say("long")) as up:
        record = recorder(up.url)
        status, _, answer = exchange(record.url, body)
        record.stop()
        assert up.seen[0].body == body
    assert status == 200
    assert b"long" in answer
    (line,) = record.journal()
    assert "not recorded" in line["problems"][0]
    assert line["bytes_up"] == len(body)
    assert record.records("turn") == []


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{not json",
        b"[1,2]",
        b'{"messages": 3}',
        b'{"messages": [{"content": 1}]}',
        b'{"messages": []}',
        b"\xff\xfe",
    ],
)
def test_bodies_that_are_no_requests_pass(body: bytes, recorder: Start) -> None:
    def play(connection: socket.socket, _request: bytes) -> None:
        connection.sendall(b'HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{"a": "b"')

    with RawServer(play) as up:
        record = recorder(up.url)
        status, headers, answer = exchange(record.url, body)
        record.stop()
        assert up.requests[0].partition(b"\r\n\r\n")[2] == body
    assert (status, answer) == (200, b'{"a": "b"')
    assert "Content-Type" not in headers
    assert "Date" not in headers
    (line,) = record.journal()
    assert line["problems"]
    assert record.records("turn") == []


def test_websocket_is_refused_so_that_clients_fall_back(recorder: Start) -> None:
    with Upstream(lambda seen: Say("x")) as up:
        record = recorder(up.url)
        request = (
            b"GET /v1/responses HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
        )
        assert talk(record.url, request).startswith(b"HTTP/1.1 426 ")
        record.stop()
        assert up.seen == []
    assert record.journal()[0]["ending"] == "refused"


def test_other_paths_and_methods_pass(recorder: Start) -> None:
    with Upstream(lambda seen: Say("x")) as up:
        record = recorder(up.url + "/v1/")
        host = record.url.removeprefix("http://")
        for method, path in (
            ("HEAD", "/"),
            ("GET", "/v1/models?a=%2F&key=sk-secret-0123456789"),
            ("DELETE", "/a%20b//c"),
            ("OPTIONS", "/x"),
        ):
            connection = http.client.HTTPConnection(host, timeout=10)
            connection.request(
                method, path, headers={"X-Two": "1", "x-two": "2", "Accept-Encoding": "br;q=1.0"}
            )
            assert connection.getresponse().status == 200
            connection.close()
        record.stop()
        assert [(seen.method, seen.target) for seen in up.seen] == [
            ("HEAD", "/"),
            ("GET", "/v1/models?a=%2F&key=sk-secret-0123456789"),
            ("DELETE", "/a%20b//c"),
            ("OPTIONS", "/x"),
        ]
        passed = [(name.lower(), value) for name, value in up.seen[0].headers if name != "Host"]
        assert passed == [("x-two", "1"), ("x-two", "2"), ("accept-encoding", "br;q=1.0")]
    assert "sk-secret" not in record.calls.read_text()


def test_header_bytes_that_are_no_text(recorder: Start) -> None:
    with Upstream(lambda seen: Say("x")) as up:
        record = recorder(up.url)
        request = post("/v1/chat/completions", ASK, "Connection: close").replace(
            b"Host: x", b"Host: x\r\nX-Name: caf\xe9"
        )
        assert talk(record.url, request).startswith(b"HTTP/1.1 200 ")
        record.stop()
    assert record.summary["turns"] == 1


def test_an_absolute_target_is_no_way_to_other_hosts(recorder: Start) -> None:
    with Upstream(lambda seen: Say("x")) as up:
        record = recorder(up.url)
        answer = talk(
            record.url, b"GET http://example.invalid/ HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
        )
        assert answer.startswith(b"HTTP/1.1 400 ")
        record.stop()
        assert up.seen == []
