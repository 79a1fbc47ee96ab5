"""Through a proxy that was asked for: absolute addresses for plain requests, a tunnel for TLS."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from test_faults import check_healthy
from wire_faults import FaultServer, healthy

from loadgen.measure.sample import ErrorClass


class Tunnel:
    """A proxy that knows CONNECT and nothing else; `answer` is what it says instead of opening one."""

    def __init__(self, answer: bytes | None = None) -> None:
        self.asked: list[bytes] = []
        self._answer = answer
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        self.asked.append(client.recv(4096))
        if self._answer is not None:
            client.sendall(self._answer)
            client.close()
            return
        host, port = self.asked[-1].split()[1].decode().rsplit(":", 1)
        server = socket.create_connection((host, int(port)))
        client.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
        threading.Thread(target=_copy, args=(server, client), daemon=True).start()
        _copy(client, server)


def _copy(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            sink.sendall(data)
    except OSError:
        pass
    sink.close()


@pytest.fixture
def tunnel() -> Iterator[Tunnel]:
    tunnel = Tunnel()
    yield tunnel
    tunnel.close()


def test_a_plain_request_names_its_whole_address(driver: Any, server: FaultServer) -> None:
    server.scripts["healthy"] = healthy()
    (result,) = driver.run("http://model.invalid/team/v1", [{}], proxy=server.url)
    check_healthy(result)
    headers = server.seen[0][0]
    assert headers[":request"] == "POST http://model.invalid/team/v1/chat/completions HTTP/1.1"
    assert headers["host"] == "model.invalid"


def test_tls_goes_through_a_tunnel(
    driver: Any, tls_server: FaultServer, tunnel: Tunnel, certificate: Any
) -> None:
    results = driver.run(
        tls_server.url,
        [{"connection": "a", "bytes": 300_000}],
        [{"connection": "a"}],
        ca=str(certificate[0]),
        proxy=tunnel.url,
    )
    for result in results:
        check_healthy(result)
    assert results[1]["reused_conn"]
    assert tunnel.asked == [
        f"CONNECT localhost:{tls_server.port} HTTP/1.1\r\nHost: localhost:{tls_server.port}\r\n\r\n".encode()
    ]


@pytest.mark.parametrize("answer", [b"HTTP/1.1 403 Forbidden\r\n\r\n", b""])
def test_a_proxy_that_refuses(driver: Any, answer: bytes) -> None:
    tunnel = Tunnel(answer)
    (result,) = driver.run("https://model.invalid", [{}], proxy=tunnel.url)
    tunnel.close()
    assert (result["error"], result["send_ns"]) == (ErrorClass.CONNECT, 0)
    assert ("403 Forbidden" if answer else "no tunnel") in result["message"]
