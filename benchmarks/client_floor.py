"""The floor: the least that a Python client can do and still see every chunk. One thread, epoll, no JSON, no errors.

    client_floor.py PORT STREAMS SECONDS WARM_SECONDS [PROMPT_BYTES]

Kernel stamps until the first token, the server's stamp cut out of the bytes, chunks counted by a word in them.
Same load and same figures as `client_wire.py`.
"""

from __future__ import annotations

import gc
import select
import socket
import struct
import sys
import time

from accounts import Account, ranks, report

SO_TIMESTAMPNS = 35


class Lane:
    __slots__ = ("first_ns", "send_ns", "sock", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock


def main(port: int, streams: int, seconds: float, warm_s: float, prompt_bytes: int = 200) -> None:
    body = b'{"model":"stamped","stream":true,"messages":[{"role":"user","content":"%s"}]}' % (
        b"x" * prompt_bytes
    )
    request = b"POST /v1/chat/completions HTTP/1.1\r\nHost: f\r\nContent-Length: %d\r\n\r\n%s" % (
        len(body),
        body,
    )
    poll, lanes = select.epoll(), {}
    errors: list[float] = []
    lags: list[float] = []
    chunks = turns = 0
    monotonic, wall = time.monotonic_ns, time.time_ns
    start = monotonic() + streams * 1_000_000
    measured_from = start + int(warm_s * 1e9)
    until = measured_from + int(seconds * 1e9)
    account, begun = Account(), False

    def begin(lane: Lane) -> None:
        lane.first_ns, lane.unsent, lane.send_ns = 0, memoryview(request), monotonic()
        push(lane)

    def push(lane: Lane) -> None:
        try:
            while lane.unsent:
                lane.unsent = lane.unsent[lane.sock.send(lane.unsent) :]
            poll.modify(lane.sock.fileno(), select.EPOLLIN)
        except BlockingIOError:
            poll.modify(lane.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    for _ in range(streams):
        sock = socket.create_connection(("127.0.0.1", port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.setblocking(False)
        lane = lanes[sock.fileno()] = Lane(sock)
        poll.register(sock.fileno(), select.EPOLLIN)
        begin(lane)
        time.sleep(0.001)
    active = streams
    while active:
        for fd, events in poll.poll(1):
            lane = lanes[fd]
            if events & select.EPOLLOUT:
                push(lane)
                continue
            if lane.first_ns:
                data = lane.sock.recv(65536)
            else:
                data, control, _, _ = lane.sock.recvmsg(65536, 64)
                now = monotonic()
                at = data.find(b'"content":" ')
                if at >= 0:
                    s, ns = struct.unpack("qq", control[0][2])
                    lane.first_ns = now - (wall() - (s * 1_000_000_000 + ns))
                    if lane.send_ns >= measured_from:
                        sent = int(data[(i := data.index(b'"sent_ns":', at) + 10) : data.index(b"}", i)])
                        errors.append((lane.first_ns - sent) / 1e3)
                        lags.append((now - lane.first_ns) / 1e3)
            chunks += data.count(b'"content":" ')
            if data.endswith(b"0\r\n\r\n"):
                turns += lane.send_ns >= measured_from
                if monotonic() < until:
                    begin(lane)
                else:
                    poll.unregister(fd)
                    lane.sock.close()
                    active -= 1
            elif not data:
                raise SystemExit("the server closed a connection")
        if not begun and monotonic() >= measured_from:
            begun, chunks = True, 0
            gc.collect()
            gc.freeze()
            account.begin()
    cost = account.end()
    report(
        ttft_error_us=ranks(errors), lag_us=ranks(lags), turns=turns, coalesced=None, chunks=chunks, **cost
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:]))
