"""A relay that keeps the bytes that pass: what a client really read, whatever its HTTP library."""

from __future__ import annotations

import contextlib
import http.client
import io
import socket
import threading
from typing import NamedTuple
from urllib.parse import urlsplit


class Answer(NamedTuple):
    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes


class Tap:
    """Context manager: relays to `target` (a URL); `answers` are the complete responses that came back."""

    def __init__(self, target: str) -> None:
        parts = urlsplit(target)
        self._target = (parts.hostname, parts.port)
        self._down: list[bytearray] = []
        self._ends: list[socket.socket] = []
        self._threads: list[threading.Thread] = []

    def __enter__(self) -> Tap:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._spawn(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for end in self._ends:
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
        for thread in self._threads:
            thread.join(5)

    def _spawn(self, target: object, *args: object) -> None:
        thread = threading.Thread(target=target, args=args, daemon=True)  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                self._ends += (client, server)
                self._down.append(bytearray())
                self._spawn(self._pump, client, server, None)
                self._spawn(self._pump, server, client, self._down[-1])

    @staticmethod
    def _pump(source: socket.socket, sink: socket.socket, copy: bytearray | None) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if copy is not None:
                    copy += data
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def answers(self) -> list[Answer]:
        result: list[Answer] = []
        for data in self._down:
            stream = io.BytesIO(bytes(data))
            while stream.tell() < len(data):
                response = http.client.HTTPResponse(_Socket(stream))  # type: ignore[arg-type]
                response.begin()
                body = response.read()
                result.append(Answer(response.status, response.reason, response.getheaders(), body))
        return result


class _Socket:
    def __init__(self, stream: io.BytesIO) -> None:
        self._stream = stream

    def makefile(self, _mode: str) -> io.BufferedIOBase:
        return _Unclosed(self._stream)


class _Unclosed(io.BufferedReader):
    """HTTPResponse closes its file behind every answer; the next answer is still in it."""

    def __init__(self, stream: io.BytesIO) -> None:
        super().__init__(stream, 1)

    def close(self) -> None:
        self.detach()
