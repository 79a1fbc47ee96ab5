"""One kept-alive connection: requests out, stamped answers in, all of it in callbacks of gevent's hub.

The socket has one persistent watcher for reading, so that a chunk costs a callback and a read, not a wait, a
timer and two greenlet switches; the calling greenlet sleeps until the exchange is over. Sends are gather writes
of bounded size between which every other stream gets its turn.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from time import monotonic_ns
from typing import Any

from gevent import get_hub

from loadgen.measure.sample import ErrorClass
from loadgen.replay.wire import stamps
from loadgen.replay.wire.addresses import forget, resolve
from loadgen.replay.wire.channel import Channel, TlsChannel
from loadgen.replay.wire.exchange import Exchange, Request, Timeouts
from loadgen.replay.wire.target import Target
from loadgen.replay.wire.turn import Turn

_READ, _WRITE = 1, 2  # events of libev
_FIRST, _LATER = 1, 0  # priorities of libev
_IDLE_S = 4.0
"""uvicorn closes after 5 s, and a request that meets the close on its way is lost. Agents' clients open anew, too: httpx
keeps a connection for 5 s."""


class Connection:
    """One connection to one endpoint, for one request at a time. `headers` go with every request.

    Nothing is retried: a connection that was found closed before a request, or was idle for `idle_s`, is opened anew,
    and one that closes under a request fails it, with `Exchange.stale` set where another attempt is reasonable.
    """

    def __init__(
        self,
        target: Target,
        *,
        headers: Sequence[tuple[str, str]] = (),
        tls_context: ssl.SSLContext | None = None,
        connect_timeout_s: float = 10.0,
        idle_s: float = _IDLE_S,
        kernel_stamps: bool = True,
        proxy: Target | None = None,
    ) -> None:
        self.target = target
        self._next_hop = proxy or target
        # A plain request names the whole address to a proxy; TLS goes through a tunnel that it opens.
        self._origin = target.origin if proxy is not None and not target.tls else ""
        self._tunnel = target.authority if proxy is not None else None
        self._fixed_headers = _header_lines(
            (
                ("Host", target.host_header),
                ("Accept-Encoding", "identity"),
                ("User-Agent", "loadgen"),
                *headers,
            )
        )
        self._secrets = _secrets(headers)
        self._tls_context = tls_context
        self._connect_timeout_ns = int(connect_timeout_s * 1e9)
        self._idle_ns = int(idle_s * 1e9)
        self._idle_since_ns = 0
        self._kernel_stamps = kernel_stamps
        if kernel_stamps:
            stamps.keep_awake()
        self._loop: Any = get_hub().loop
        self._channel: Channel | None = None
        self._reader: Any = None
        self._writer: Any = None
        self._turn: Turn | None = None
        self.interrupted: Exchange | None = None  # what was seen of the exchange whose greenlet was killed

    # for the calling greenlet

    def exchange(self, request: Request, timeouts: Timeouts) -> Exchange:
        """Send one request and return everything seen of it when it is over.

        Blocks the calling greenlet only. What a server or the network does is in `Exchange.error`, never raised;
        a greenlet that is killed here closes the connection.
        """
        if self._turn is not None:
            raise RuntimeError("a connection carries one request at a time")
        turn = self._turn = Turn(request, timeouts, self._head(request), self._loop)
        try:
            self._start(turn)
            if not turn.over:
                turn.waiter.get()
        except BaseException:
            self._fail(turn, ErrorClass.CANCELLED, "the lane was taken away")
            self.interrupted = turn.exchange
            self._drop()
            raise
        finally:
            self._turn = None
            turn.release()
        if turn.crash is not None:
            raise turn.crash
        return turn.exchange

    def abort(self) -> None:
        """Cut the exchange that is under way, from any greenlet: the server sees the connection close."""
        if self._turn is not None:
            self._fail(self._turn, ErrorClass.CANCELLED, "cancelled by the client")

    def close(self) -> None:
        """Close the connection; an exchange under way ends as cancelled."""
        self.abort()
        self._drop()

    # the course of an exchange

    def _start(self, turn: Turn) -> None:
        exchange = turn.exchange
        if self._channel is not None and (
            monotonic_ns() - self._idle_since_ns >= self._idle_ns or not self._channel.quiet()
        ):
            self._drop()  # closed while idle, or about to be: servers do so after a few seconds, agents think longer
        if self._channel is not None:
            exchange.reused_conn = True
            self._begin_send(turn)
            return
        try:
            turn.addresses = resolve(self._next_hop)
        except OSError as error:
            self._fail(
                turn, ErrorClass.CONNECT, f"cannot resolve {self._next_hop.host}: {error.strerror or error}"
            )
            return
        if not turn.over:  # aborted while the name was looked up
            turn.connect_began_ns = monotonic_ns()
            self._connect_next(turn)

    def _connect_next(self, turn: Turn) -> None:
        """Try the next address; fail the turn when there is none left."""
        error: Exception | None = turn.connect_error
        while turn.addresses:
            family, where = turn.addresses.pop(0)
            try:
                if self.target.tls:
                    context = self._tls_context or _default_context()
                    self._channel = TlsChannel(
                        (family, where),
                        kernel_stamps=self._kernel_stamps,
                        context=context,
                        name=self.target.host,
                        tunnel=self._tunnel,
                    )
                else:
                    self._channel = Channel((family, where), kernel_stamps=self._kernel_stamps)
            except OSError as refused:
                error = refused
                continue
            self._reader = self._loop.io(self._channel.fd, _READ)
            self._writer = self._loop.io(self._channel.fd, _WRITE)
            self._writer.start(self._on_writable)
            self._arm(turn)
            return
        forget(self._next_hop)
        words = getattr(error, "strerror", None) or str(error)
        self._fail(turn, ErrorClass.CONNECT, f"cannot connect to {self.target}: {words}")

    def _establish(self, turn: Turn) -> None:
        channel = self._channel
        assert channel is not None
        try:
            done = channel.establish()
        except OSError as error:  # ssl.SSLError is one
            turn.connect_error = error
            self._drop()
            self._connect_next(turn)
            return
        if done:
            turn.exchange.connect_ns = monotonic_ns() - turn.connect_began_ns
            self._begin_send(turn)
            return
        if not self._reader.active:
            self._reader.start(self._on_readable)
        if channel.wants_write:
            self._writer.start(self._on_writable)
        else:
            self._writer.stop()

    def _begin_send(self, turn: Turn) -> None:
        self._read_with(_FIRST)
        turn.exchange.send_ns = monotonic_ns()
        self._arm(turn)
        self._push(turn)

    def _read_with(self, priority: int) -> None:
        """Watch for answers: streams that wait for their first token are read before all others in a round of the loop."""
        self._reader.stop()
        self._reader.priority = priority
        self._reader.start(self._on_readable)

    def _push(self, turn: Turn) -> None:
        """Send one slice; the rest goes from `_on_writable`, after the other streams had their turn."""
        channel = self._channel
        assert channel is not None
        turn.sending = True
        try:
            channel.send(turn.upload)
        except (
            OSError
        ):  # an early answer (401, 413) may be waiting to be read; if there is none, reading will say so
            self._end_send(turn)
            return
        if not turn.upload.left and not channel.unsent:
            turn.exchange.sent_ns = monotonic_ns()
            self._end_send(turn)
            return
        turn.lateness.pause()
        self._writer.start(self._on_writable)

    def _end_send(self, turn: Turn) -> None:
        turn.sending = False
        turn.lateness.stop()
        self._writer.stop()

    # callbacks of the hub

    def _on_writable(self) -> None:
        turn = self._turn
        if turn is None or turn.over:
            self._writer.stop()
            return
        try:
            if turn.exchange.send_ns == 0:
                self._establish(turn)
            elif turn.sending:
                turn.exchange.client_delay_ns += turn.lateness.resume()
                self._push(turn)
            else:
                self._writer.stop()
        except BaseException as error:  # noqa: BLE001 - raised again in the greenlet that waits
            self._crash(turn, error)

    def _on_readable(self) -> None:
        turn = self._turn
        if turn is None:  # idle: the server closed, or sent what nobody asked for
            self._drop()
            return
        if turn.over:
            return
        try:
            if turn.exchange.send_ns == 0:
                self._establish(turn)
            else:
                self._read(turn)
        except BaseException as error:  # noqa: BLE001 - raised again in the greenlet that waits
            self._crash(turn, error)

    def _read(self, turn: Turn) -> None:
        exchange = turn.exchange
        waiting = exchange.first_token_ns is None
        assert self._channel is not None
        try:
            found = self._channel.receive(waiting)
        except OSError as error:
            turn.decoder.interrupt(ErrorClass.RESET, f"the connection was reset: {error.strerror or error}")
            self._finish(turn)
            return
        if found is None:
            return
        data, arrival_ns, now_ns = found
        if not data:
            turn.decoder.eof()
            self._finish(turn)
            return
        stamped = arrival_ns is not None and arrival_ns >= exchange.send_ns  # else the wall clock was set
        over = turn.decoder.feed(data, arrival_ns if stamped and arrival_ns is not None else now_ns, now_ns)
        if waiting and exchange.first_token_ns is not None:
            exchange.clock = "kernel" if stamped else "loop"
            self._arm(turn)
            self._read_with(_LATER)
        if over:
            self._finish(turn)

    def _on_timer(self) -> None:
        turn = self._turn
        if turn is None or turn.over:
            return
        deadline, error, message = turn.deadline(self._connect_timeout_ns)
        if deadline > monotonic_ns():
            self._arm(turn)
        elif error is ErrorClass.CONNECT:
            self._fail(turn, error, f"cannot connect to {self.target}: {message}")
        else:
            turn.decoder.interrupt(error, message)
            self._finish(turn)

    def _arm(self, turn: Turn) -> None:
        """One timer a turn. It is set again when a deadline may have come nearer; one that moved away is seen when it fires."""
        deadline = turn.deadline(self._connect_timeout_ns)[0]
        turn.set_timer(deadline, self._on_timer)

    # the end of an exchange

    def _fail(self, turn: Turn, error: ErrorClass, message: str) -> None:
        if not turn.over:
            turn.exchange.fail(error, message)
            self._finish(turn)

    def _finish(self, turn: Turn) -> None:
        exchange, decoder = turn.exchange, turn.decoder
        exchange.end_ns = self._idle_since_ns = monotonic_ns()
        decoder.settle()
        if exchange.error is not None:
            exchange.stale = (
                exchange.reused_conn and exchange.error is ErrorClass.RESET and not decoder.started
            )
            for secret in self._secrets:
                exchange.message = (exchange.message or "").replace(secret, "[redacted]")
        if exchange.error is ErrorClass.CANCELLED or exchange.sent_ns is None or not decoder.reusable:
            self._drop()
        turn.wake()

    def _crash(self, turn: Turn, error: BaseException) -> None:
        """An error of ours inside a callback: raise it in the greenlet that waits instead of letting it hang."""
        turn.crash = error
        self._drop()
        turn.wake()

    def _drop(self) -> None:
        if self._channel is None:
            return
        for watcher in (self._reader, self._writer):
            watcher.stop()
            watcher.close()
        self._channel.close()
        self._channel = self._reader = self._writer = None

    def _head(self, request: Request) -> bytes:
        length = sum(map(len, request.parts))
        lines = (
            f"{request.method} {self._origin}{self.target.path(request.path)} HTTP/1.1\r\n".encode("ascii")
            + self._fixed_headers
        )
        if request.events is not None:
            lines += b"Accept: text/event-stream\r\n"
        if request.method != "GET":
            lines += b"Content-Type: application/json\r\nContent-Length: %d\r\n" % length
        return lines + _header_lines(request.headers) + b"\r\n"


def _secrets(headers: Sequence[tuple[str, str]]) -> list[str]:
    """What must not come back in a message: keys, with and without the name of their scheme."""
    values = [value for name, value in headers if name.lower() in ("authorization", "x-api-key", "api-key")]
    return [secret for value in values for secret in (value, value.split()[-1]) if secret]


_contexts: list[ssl.SSLContext] = []


def _default_context() -> ssl.SSLContext:
    """Made once: loading the certificates takes 50 ms."""
    if not _contexts:
        _contexts.append(ssl.create_default_context())
    return _contexts[0]


def _header_lines(headers: Sequence[tuple[str, str]]) -> bytes:
    """Header lines as bytes. Raises ValueError for a name or value that would end the line."""
    for name, value in headers:
        if any(c in "\r\n\0" for c in name + value) or ":" in name or not name.strip():
            raise ValueError(f"the header {name!r} cannot be sent")
    return "".join(f"{name}: {value}\r\n" for name, value in headers).encode("latin-1")
