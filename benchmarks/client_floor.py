"""The floor: the least that a Python client can do and still see every chunk. One thread, epoll, no JSON, no errors.

Kernel stamps until the first token, the server's stamp cut out of the bytes, chunks counted by a word in them.
Same load and same figures as `client_wire.py`.
"""

from __future__ import annotations

import select
import socket
import struct
import time

from accounts import Account, Load, ranks, report

SO_TIMESTAMPNS = 35


class Lane:
    __slots__ = ("first_ns", "send_ns", "sent_ns", "sock", "unsent")

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock


def main(load: Load) -> None:
    bodies = [
        b'{"model":"stamped","stream":true,"messages":[{"role":"user","content":"%s"}]}'
        % text.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\n", b"\\n")
        for text in load.prompts
    ]
    requests = [
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: f\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
        for body in bodies
    ]
    poll, lanes = select.epoll(), {}
    errors: list[float] = []
    ttfts: list[float] = []
    lags: list[float] = []
    chunks = turns = 0
    monotonic, wall = time.monotonic_ns, time.time_ns
    account, begun = Account(), False

    def begin(lane: Lane, prompt: int) -> None:
        lane.first_ns, lane.unsent, lane.send_ns = 0, memoryview(requests[prompt]), monotonic()
        push(lane)

    def push(lane: Lane) -> None:
        try:
            while lane.unsent:
                lane.unsent = lane.unsent[lane.sock.send(lane.unsent) :]
            lane.sent_ns = monotonic()
            poll.modify(lane.sock.fileno(), select.EPOLLIN)
        except BlockingIOError:
            poll.modify(lane.sock.fileno(), select.EPOLLIN | select.EPOLLOUT)

    load.start()
    if load.measured_from_ns <= load.started_ns:
        begun = True
        account.begin()
    for _ in range(load.streams):
        prompt = load.next_prompt()
        assert prompt is not None
        sock = socket.create_connection(("127.0.0.1", load.port))
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        sock.setblocking(False)
        lane = lanes[sock.fileno()] = Lane(sock)
        poll.register(sock.fileno(), select.EPOLLIN)
        begin(lane, prompt)
    active = load.streams
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
                    if control:
                        s, ns = struct.unpack("qq", control[0][2])
                        lane.first_ns = now - (wall() - (s * 1_000_000_000 + ns))
                    else:  # the kernel stamps from a little after the first socket asked for it
                        lane.first_ns = now
                    if lane.send_ns >= load.measured_from_ns:
                        sent = int(data[(i := data.index(b'"sent_ns":', at) + 10) : data.index(b"}", i)])
                        errors.append((lane.first_ns - sent) / 1e3)
                        ttfts.append((lane.first_ns - lane.sent_ns) / 1e6)
                        lags.append((now - lane.first_ns) / 1e3)
            chunks += data.count(b'"content":" ')
            if data.endswith(b"0\r\n\r\n"):
                turns += lane.send_ns >= load.measured_from_ns
                prompt = load.next_prompt()
                if prompt is not None:
                    begin(lane, prompt)
                else:
                    poll.unregister(fd)
                    lane.sock.close()
                    active -= 1
            elif not data:
                raise SystemExit("the server closed a connection")
        if not begun and monotonic() >= load.measured_from_ns:
            begun, chunks = True, 0
            account.begin()
    cost = account.end()
    report(
        ttft_error_us=ranks(errors),
        ttft_ms=ranks(ttfts),
        lag_us=ranks(lags),
        turns=turns,
        coalesced=None,
        chunks=chunks,
        **cost,
    )


if __name__ == "__main__":
    main(Load())
