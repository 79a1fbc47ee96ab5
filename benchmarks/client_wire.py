"""Our wire client alone under load: STREAMS connections that send one request after another until the time is up.

    client_wire.py PORT STREAMS SECONDS WARM_SECONDS [PROMPT_BYTES]

Prints one JSON object. TTFT error is first_token_ns minus the server's own stamp in that event.
"""

from __future__ import annotations

import gc
import sys
import time
from typing import Any

import gevent
from accounts import Account, ranks, report

from loadgen.replay.wire import chat
from loadgen.replay.wire.api import Output
from loadgen.replay.wire.connection import Connection
from loadgen.replay.wire.exchange import Exchange, Request, Timeouts
from loadgen.replay.wire.target import Target


class StampedEvents(chat.Events):
    """Chat events that keep the server's stamp of the first token; `tokens` counts those of all streams."""

    __slots__ = ("first_sent_ns",)
    tokens = 0

    def __init__(self) -> None:
        super().__init__()
        self.first_sent_ns: int | None = None

    def read(self, event: dict[str, Any]) -> int:
        kind = super().read(event)
        if kind:
            StampedEvents.tokens += 1
            if self.first_sent_ns is None:
                self.first_sent_ns = event["sent_ns"]
        return kind


def main(port: int, streams: int, seconds: float, warm_s: float, prompt_bytes: int = 200) -> None:
    target = Target.parse(f"127.0.0.1:{port}")
    head, tail = chat.envelope("stamped", Output(tokens=1))
    parts = (head, chat.message({"role": "user", "content": "x" * prompt_bytes}), tail)
    timeouts = Timeouts(first_token_s=60, stall_s=60)
    found: list[tuple[Exchange, int]] = []
    start = time.monotonic() + 0.001 * streams
    measured_from, until = start + warm_s, start + warm_s + seconds
    account = Account()

    def lane() -> None:
        connection = Connection(target)
        while time.monotonic() < until:
            events = StampedEvents()
            exchange = connection.exchange(
                Request(chat.PATH, parts, events=lambda made=events: made), timeouts
            )
            if exchange.error is not None:
                raise SystemExit(f"{exchange.error}: {exchange.message}")
            assert events.first_sent_ns is not None
            found.append((exchange, events.first_sent_ns))
        connection.close()

    def begin() -> None:
        gc.collect()
        gc.freeze()
        StampedEvents.tokens = 0
        account.begin()

    gevent.spawn_later(measured_from - time.monotonic(), begin)
    lanes = []
    for _ in range(streams):
        lanes.append(gevent.spawn(lane))
        gevent.sleep(0.001)
    gevent.joinall(lanes, raise_error=True)
    cost = account.end()
    kept = [(x, sent) for x, sent in found if x.send_ns >= measured_from * 1e9]
    report(
        ttft_error_us=ranks([(x.first_token_ns - sent) / 1e3 for x, sent in kept if x.first_token_ns]),
        lag_us=ranks([(x.lag_ns or 0) / 1e3 for x, _ in kept]),
        turns=len(kept),
        coalesced=sum(x.coalesced for x, _ in kept),
        chunks=StampedEvents.tokens,
        **cost,
    )


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]), float(sys.argv[4]), *map(int, sys.argv[5:]))
