"""A server that does to each request exactly what its script says, over real sockets.

It runs in threads of the test's own process (which is not monkey-patched); the client under test runs in
another. A request names its script in the header `X-Script`.
"""

from __future__ import annotations

import json
import socket
import ssl
import struct
import threading
import time
from collections.abc import Sequence
from typing import Any

HEAD = (
    b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
)
LAST_CHUNK = b"0\r\n\r\n"
Step = bytes | float | str
"""Bytes are sent, a number is slept (seconds), a word is done: `close`, `reset`, `hang` (until the client goes)."""


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def event(value: Any, newline: bytes = b"\n") -> bytes:
    return b"data: " + json.dumps(value).encode() + newline * 2


def delta(newline: bytes = b"\n", **fields: Any) -> bytes:
    return event({"choices": [{"index": 0, "delta": fields, "finish_reason": None}]}, newline)


def finish(reason: str = "length", newline: bytes = b"\n") -> bytes:
    return event({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}, newline)


def usage(output: int = 3, newline: bytes = b"\n", **more: Any) -> bytes:
    counts = {"prompt_tokens": 10, "completion_tokens": output, "total_tokens": 10 + output, **more}
    return event({"choices": [], "usage": counts}, newline)


DONE = b"data: [DONE]\n\n"


def tail(output: int = 3) -> bytes:
    """All that follows the last token of a healthy stream."""
    return chunk(finish()) + chunk(usage(output)) + chunk(DONE) + LAST_CHUNK


def healthy(tokens: int = 3, gap_s: float = 0.02) -> list[Step]:
    steps: list[Step] = [HEAD, gap_s, chunk(delta(role="assistant", content=""))]
    for number in range(tokens):
        steps += [chunk(delta(content=f" t{number}")), gap_s]
    return [*steps, tail(tokens)]


def plain(status: str, body: bytes, *headers: str) -> bytes:
    lines = "".join(f"{line}\r\n" for line in headers)
    return f"HTTP/1.1 {status}\r\ncontent-length: {len(body)}\r\n{lines}\r\n".encode() + body


class FaultServer:
    """Listens on a free port of 127.0.0.1. `seen` holds (headers, body) of every request that was read in full."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.scripts: dict[str, Sequence[Step]] = {"healthy": healthy()}
        self.seen: list[tuple[dict[str, str], bytes]] = []
        self.aborted: list[str] = []  # scripts during which the client closed
        self.connections = 0
        self.read_delay_s = 0.0  # between the head of a request and the reading of its body
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._listener.getsockname()[1]
        self.url = f"{'https' if tls else 'http'}://localhost:{self.port}"
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._tls is not None:
                client = self._tls.wrap_socket(client, server_side=True)
            while (request := _read_request(client, self.scripts, self.read_delay_s)) is not None:
                headers, body = request
                if body is not None:
                    self.seen.append((headers, body))
                if not self._play(client, headers.get("x-script", "healthy")):
                    return
        except OSError:
            pass
        finally:
            client.close()

    def _play(self, client: socket.socket, name: str) -> bool:
        for step in self.scripts[name]:
            if isinstance(step, bytes):
                try:
                    client.sendall(step)
                except OSError:
                    self.aborted.append(name)
                    raise
            elif isinstance(step, float):
                time.sleep(step)
            elif step == "reset":
                client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                return False
            elif step == "hang":
                client.settimeout(20)
                try:
                    gone = not client.recv(1)
                except ConnectionError:
                    gone = True
                if gone:
                    self.aborted.append(name)
                return False
            elif step == "close":
                return False
        return True


def _read_request(
    client: socket.socket, scripts: dict[str, Sequence[Step]], delay_s: float
) -> tuple[dict[str, str], bytes | None] | None:
    """Headers and body; None at the end of the connection. Of a script that begins with `early`, only the headers."""
    data = b""
    while b"\r\n\r\n" not in data:
        piece = client.recv(65536)
        if not piece:
            return None
        data += piece
    head, body = data.split(b"\r\n\r\n", 1)
    lines = head.decode("latin-1").split("\r\n")
    headers = {":request": lines[0]} | {k.lower(): v for k, v in (line.split(": ", 1) for line in lines[1:])}
    if scripts.get(headers.get("x-script", ""), ("",))[0] == "early":
        return headers, None
    length = int(headers.get("content-length", "0"))
    pieces, size = [body], len(body)
    time.sleep(delay_s)
    while size < length:
        piece = client.recv(1 << 20)
        if not piece:
            return None
        pieces.append(piece)
        size += len(piece)
    return headers, b"".join(pieces)
