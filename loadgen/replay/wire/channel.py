"""A socket that never blocks: connect, gather writes and stamped reads, in plain text or through TLS.

TLS goes through `ssl.MemoryBIO`, so that reading the socket, and with it the kernel's stamp, stays ours.
"""

from __future__ import annotations

import errno
import os
import re
import socket
import ssl
from collections.abc import Sequence
from time import monotonic_ns
from typing import Any

from gevent import monkey

from loadgen.replay.wire import stamps
from loadgen.replay.wire.exchange import Part

READ_BYTES = 64 << 10
SLICE_BYTES = (
    256 << 10
)  # handed to the kernel in one go: bounds how long one send can hold up the other streams
_IOV_MAX = 1024
_RECORD_BYTES = 16 << 10

Received = tuple[bytes, int | None, int]
"""Data (empty at the end of the stream), when it arrived, and now; monotonic ns."""

_new_socket = monkey.get_original(
    "socket", "socket"
)  # the blocking kind, also where Locust patched the module


class Upload:
    """A cursor over the parts of a request; hands out slices without copying."""

    __slots__ = ("_index", "_offset", "_parts", "left")

    def __init__(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._index = self._offset = 0
        self.left = sum(map(len, parts))  # bytes

    def window(self, limit: int) -> list[Part]:
        """The next parts, at most `limit` bytes and at most as many as one system call takes."""
        window: list[Part] = []
        index, offset = self._index, self._offset
        while index < len(self._parts) and limit > 0 and len(window) < _IOV_MAX:
            part = self._parts[index]
            size = len(part) - offset
            if size > limit:
                window.append(memoryview(part)[offset : offset + limit])
                break
            if size:
                window.append(memoryview(part)[offset:] if offset else part)
            limit -= size
            index, offset = index + 1, 0
        return window

    def advance(self, count: int) -> None:
        """`count` bytes were taken."""
        self.left -= count
        count += self._offset
        while count and count >= len(self._parts[self._index]):
            count -= len(self._parts[self._index])
            self._index += 1
        self._offset = count


class Channel:
    """Plain TCP. Methods raise OSError for what the other side or the network does, and never block."""

    def __init__(self, address: tuple[int, Any], *, kernel_stamps: bool) -> None:
        family, where = address
        self._socket = _new_socket(family, socket.SOCK_STREAM)
        try:
            self._socket.setblocking(False)
            self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self.stamped = kernel_stamps and stamps.enable(self._socket)
            self.fd: int = self._socket.fileno()
            self._connected = False
            code = self._socket.connect_ex(where)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
        except BaseException:
            self._socket.close()
            raise

    wants_write = True  # while not established: whether writability is awaited

    def establish(self) -> bool:
        """Go on with connecting; True when data can flow."""
        if not self._connected:
            if code := self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(code, os.strerror(code))
            try:
                self._socket.getpeername()
            except OSError as error:
                if error.errno == errno.ENOTCONN:
                    return False
                raise
            self._connected = True
        return True

    def send(self, upload: Upload) -> None:
        """Hand at most one slice to the kernel, or what it takes of it."""
        try:
            upload.advance(self._socket.sendmsg(upload.window(SLICE_BYTES)))
        except (BlockingIOError, InterruptedError):
            pass

    @property
    def unsent(self) -> int:
        """Bytes taken from an upload and not yet handed to the kernel."""
        return 0

    def receive(self, stamp: bool) -> Received | None:
        """One read; None when there is nothing yet. Arrival is None without `stamp` or where the kernel gives none."""
        try:
            if stamp and self.stamped:
                data, control, _, _ = self._socket.recvmsg(READ_BYTES, stamps.CONTROL_BYTES)
                if (arrival := stamps.arrival(control)) is not None:
                    return data, *arrival
            else:
                data = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        return data, None, monotonic_ns()

    def quiet(self) -> bool:
        """Whether an idle connection is still open and nothing unasked came: only then may it be used again."""
        try:
            self._socket.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return True
        except OSError:
            return False
        return False

    def close(self) -> None:
        self._socket.close()


class TlsChannel(Channel):
    """TLS over the same socket. One read returns what the records that have arrived hold.

    With `tunnel`, HOST:PORT, the address is that of a proxy, which is first asked for a tunnel to there.
    """

    def __init__(
        self,
        address: tuple[int, Any],
        *,
        kernel_stamps: bool,
        context: ssl.SSLContext,
        name: str,
        tunnel: str | None = None,
    ) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=name)
        self._pending: memoryview | None = None  # not yet taken by the kernel
        self._tunnel_answer: bytes | None = None
        if tunnel is not None:
            ask = f"CONNECT {tunnel} HTTP/1.1\r\nHost: {tunnel}\r\n\r\n"
            self._pending, self._tunnel_answer = memoryview(ask.encode("ascii")), b""
        self._secure = False
        super().__init__(address, kernel_stamps=kernel_stamps)

    def establish(self) -> bool:
        if not super().establish():
            return False
        if self._secure:
            return True
        data = super().receive(stamp=False)
        if self._tunnel_answer is not None:
            self._open_tunnel(data)
        elif data is not None and data[0]:
            self._incoming.write(data[0])
        elif data is not None:
            self._incoming.write_eof()
        if self._tunnel_answer is None:
            try:
                self._tls.do_handshake()
                self._secure = True
            except ssl.SSLWantReadError:
                pass
        flushed = self._flush()
        self.wants_write = not flushed
        return self._secure and flushed

    def _open_tunnel(self, data: Received | None) -> None:
        """Take in what the proxy answered; the server's own bytes follow only after we have sent some."""
        assert self._tunnel_answer is not None
        if data is None:
            return
        self._tunnel_answer += data[0]
        head, end, _ = self._tunnel_answer.partition(b"\r\n\r\n")
        words = head.split(b"\r\n")[0].decode("latin-1")[:100]
        if not data[0] or len(head) > READ_BYTES:
            raise ConnectionError(errno.ECONNREFUSED, f"the proxy opened no tunnel: {words or 'no answer'}")
        if end and not re.match(r"HTTP/1\.[01] 2\d\d", words):
            raise ConnectionError(errno.ECONNREFUSED, f"the proxy refused the tunnel: {words}")
        if end:
            self._tunnel_answer = None

    def send(self, upload: Upload) -> None:
        taken = 0
        while self._flush() and upload.left and taken < SLICE_BYTES:
            for part in upload.window(_RECORD_BYTES):
                written = self._tls.write(part)
                upload.advance(written)
                taken += written

    @property
    def unsent(self) -> int:
        return (len(self._pending) if self._pending else 0) + self._outgoing.pending

    def receive(self, stamp: bool) -> Received | None:
        found = super().receive(stamp)
        if found is None:
            return None
        data, arrival, now = found
        if not data:
            return found
        self._incoming.write(data)
        plain = []
        try:
            while piece := self._tls.read(READ_BYTES):
                plain.append(piece)
        except ssl.SSLWantReadError:
            if not plain:  # part of a record, or a session ticket
                return None
        except ssl.SSLZeroReturnError:
            pass
        return b"".join(plain), arrival, now

    def _flush(self) -> bool:
        """Hand encrypted bytes to the kernel; True when none are left."""
        while True:
            if not self._pending:
                if not self._outgoing.pending:
                    return True
                self._pending = memoryview(self._outgoing.read())
            try:
                taken = self._socket.send(self._pending)
            except (BlockingIOError, InterruptedError):
                return False
            self._pending = self._pending[taken:]
