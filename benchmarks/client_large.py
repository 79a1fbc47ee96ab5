"""CPU and blocking of large requests: 83 messages of together 600 KB against one small message, one token out.

    client_large.py PORT TURNS small|large|idle

Prints CPU per turn and the longest time for which another greenlet, which ticks every 0.5 ms, did not get to run.
"""

from __future__ import annotations

import gc
import sys
import time
from itertools import chain, repeat

import gevent
from accounts import Account, ranks, report

from loadgen.replay.wire import chat
from loadgen.replay.wire.api import Output
from loadgen.replay.wire.connection import Connection
from loadgen.replay.wire.exchange import Request, Timeouts
from loadgen.replay.wire.target import Target

MESSAGES, BYTES = 83, 600_000


def main(port: int, turns: int, kind: str) -> None:
    count, size = (MESSAGES, BYTES // MESSAGES) if kind == "large" else (1, 200)
    messages = [chat.message({"role": "user", "content": "x" * size}) for _ in range(count)]
    head, tail = chat.envelope("stamped", Output(tokens=1))
    parts = [head, *chain.from_iterable(zip(messages, repeat(b",")))]
    parts[-1] = tail
    connection = Connection(Target.parse(f"127.0.0.1:{port}"))
    late: list[float] = []

    def tick() -> None:
        before = time.monotonic_ns()
        while True:
            gevent.sleep(0.0005)
            now = time.monotonic_ns()
            late.append((now - before) / 1e6 - 0.5)
            before = now

    def turn() -> None:
        if kind == "idle":
            gevent.sleep(0.002)
            return
        exchange = connection.exchange(Request(chat.PATH, parts, events=chat.events), Timeouts())
        if exchange.error is not None:
            raise SystemExit(f"{exchange.error}: {exchange.message}")

    for _ in range(20):
        turn()
    gc.collect()
    gc.freeze()
    account = Account()
    account.begin()
    for _ in range(turns):
        turn()
    cost = account.end()
    ticker = gevent.spawn(tick)
    for _ in range(turns):
        turn()
    ticker.kill()
    connection.close()
    report(cpu_ms=cost["cpu_s"] / turns * 1e3, late_ms=ranks(late), rss_mb=cost["rss_mb"])


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
