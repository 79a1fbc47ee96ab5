"""One request at a time over a plain socket, read by the same decoder and stamped by the same kernel as a run's.

Nothing else goes on while the doctor asks, so a blocking socket is the simplest client there is.
"""

from __future__ import annotations

import socket
import ssl
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from time import monotonic_ns
from typing import Any

from loadgen.measure.sample import ErrorClass
from loadgen.replay.endpoint import Api
from loadgen.replay.wire import chat, stamps
from loadgen.replay.wire.api import Output
from loadgen.replay.wire.decoder import ResponseDecoder
from loadgen.replay.wire.exchange import Exchange

_READ = 1 << 18
Message = dict[str, Any]


@dataclass
class Asked:
    """One answer: everything that a run would record of it, and how its token events lay in the reads."""

    exchange: Exchange
    reads: list[tuple[int, int]] = field(default_factory=list)  # (arrival ns, token events) of every read
    body_bytes: int = 0

    @property
    def error(self) -> str | None:
        if self.exchange.error is None:
            return None
        return f"{self.exchange.error.value}: {self.exchange.message}"

    @property
    def ttft_s(self) -> float | None:
        first = self.exchange.first_token_ns
        return None if first is None else (first - self.exchange.send_ns) / 1e9

    @property
    def prompt_tokens(self) -> int | None:
        return self.exchange.usage.prompt_tokens if self.exchange.usage else None

    @property
    def cached_tokens(self) -> int | None:
        return self.exchange.usage.cached_tokens if self.exchange.usage else None

    @property
    def burst_share(self) -> float | None:
        """Share of the token events that came in one read with an earlier one; null for fewer than two events."""
        events = sum(count for _, count in self.reads)
        return sum(count - 1 for _, count in self.reads if count) / (events - 1) if events > 1 else None


def ask(
    api: Api,
    model: str,
    messages: Sequence[Message],
    *,
    output_tokens: int = 2,
    forced: bool = True,
    extra: dict[str, Any] | None = None,
    timeout_s: float = 900.0,
) -> Asked:
    """Stream one chat completion on a new connection. Never raises for what an endpoint does: see `Asked.error`.

    `extra` is added to the body (`cache_salt`, `kv_transfer_params`, …).
    """
    head, tail = chat.envelope(model, Output(tokens=output_tokens, forced=forced, extra=extra or {}))
    body = head + b",".join(chat.message(message) for message in messages) + tail
    exchange = Exchange()
    asked = Asked(exchange, body_bytes=len(body))
    decoder = ResponseDecoder(exchange, chat.events())
    started = monotonic_ns()
    try:
        with _connect(api, timeout_s) as sock:
            exchange.connect_ns = monotonic_ns() - started
            kernel = stamps.enable(sock) and not isinstance(sock, ssl.SSLSocket)
            exchange.clock = "kernel" if kernel else "loop"
            exchange.send_ns = monotonic_ns()
            sock.sendall(_head(api, len(body)) + body)
            exchange.sent_ns = monotonic_ns()
            _read(sock, decoder, asked, kernel)
    except TimeoutError:
        exchange.fail(ErrorClass.TIMEOUT_FIRST_TOKEN, f"nothing came for {timeout_s:g} s")
    except OSError as error:
        connected = exchange.connect_ns is not None
        kind = ErrorClass.RESET if connected else ErrorClass.CONNECT
        exchange.fail(kind, error.strerror or str(error))
    exchange.end_ns = monotonic_ns()
    decoder.settle()
    return asked


def _read(sock: socket.socket, decoder: ResponseDecoder, asked: Asked, kernel: bool) -> None:
    exchange = asked.exchange
    while True:
        seen = exchange.chunks
        if kernel:
            data, control, _, _ = sock.recvmsg(_READ, stamps.CONTROL_BYTES)
            arrival = stamps.arrival(control)
            stamp, now = arrival if arrival is not None else (monotonic_ns(),) * 2
        else:
            data = sock.recv(_READ)
            stamp = now = monotonic_ns()
        if not data:
            decoder.eof()
            return
        over = decoder.feed(data, stamp, now)
        asked.reads.append((stamp, exchange.chunks - seen))
        if over:
            return


def connect_s(api: Api, timeout_s: float = 10.0) -> float:
    """Seconds of one TCP connect (without TLS): about one round trip of the path. Raises OSError."""
    start = monotonic_ns()
    socket.create_connection((api.target.host, api.target.port), timeout_s).close()
    return (monotonic_ns() - start) / 1e9


def _connect(api: Api, timeout_s: float) -> socket.socket:
    sock = socket.create_connection((api.target.host, api.target.port), timeout_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    if not api.target.tls:
        return sock
    return ssl.create_default_context().wrap_socket(sock, server_hostname=api.target.host)


def _head(api: Api, size: int) -> bytes:
    lines = [
        f"POST {api.target.path(chat.PATH)} HTTP/1.1",
        f"Host: {api.target.host_header}",
        "Content-Type: application/json",
        "Accept: text/event-stream",
        "Accept-Encoding: identity",
        f"Content-Length: {size}",
        f"X-Request-Id: doctor-{uuid.uuid4().hex[:12]}",
        "Connection: close",
    ]
    if api.key:
        lines.append(f"Authorization: Bearer {api.key}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
