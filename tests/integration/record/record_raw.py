"""A server whose every byte a test decides."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable

Play = Callable[[socket.socket, bytes], None]  # (connection, what was read of the request)


class RawServer:
    """Context manager: reads a request up to the end of its headers (and Content-Length), then plays."""

    def __init__(self, play: Play) -> None:
        self._play = play
        self.requests: list[bytes] = []
        self.disconnected = threading.Event()

    def __enter__(self) -> RawServer:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError), connection:
            while request := self._request(connection):
                self.requests.append(request)
                self._play(connection, request)
        self.disconnected.set()

    @staticmethod
    def _request(connection: socket.socket) -> bytes:
        data = bytearray()
        while b"\r\n\r\n" not in data:
            piece = connection.recv(1 << 16)
            if not piece:
                return b""
            data += piece
        head, _, rest = bytes(data).partition(b"\r\n\r\n")
        length = 0
        for line in head.split(b"\r\n"):
            name, _, value = line.partition(b":")
            if name.lower() == b"content-length":
                length = int(value)
        chunked = b"transfer-encoding: chunked" in head.lower()
        while len(rest) < length or (chunked and not rest.endswith(b"0\r\n\r\n")):
            piece = connection.recv(1 << 20)
            if not piece:
                break
            rest += piece
        return head + b"\r\n\r\n" + rest


def talk(url: str, data: bytes, *, half_close: bool = False, read: bool = True) -> bytes:
    """Send bytes to a server and read until it closes (or a second of silence)."""
    host, port = url.removeprefix("http://").split(":")
    with socket.create_connection((host, int(port)), timeout=2) as connection:
        connection.sendall(data)
        if half_close:
            connection.shutdown(socket.SHUT_WR)
        answer = bytearray()
        if read:
            with contextlib.suppress(TimeoutError, ConnectionError):
                while piece := connection.recv(1 << 20):
                    answer += piece
        return bytes(answer)


def post(path: str, body: bytes, *headers: str) -> bytes:
    lines = [
        f"POST {path} HTTP/1.1",
        "Host: x",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        *headers,
    ]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body
