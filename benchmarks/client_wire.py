"""Our wire client alone under load, without Locust, samples and histograms. See `accounts.Load` for its arguments.

Prints one JSON object. `ttft_error_us` is first_token_ns minus the server's own stamp in that event; `ttft_ms` counts
from the last byte sent.
"""

from __future__ import annotations

from typing import Any

import gevent
from accounts import Account, Load, ranks, report

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


def main(load: Load) -> None:
    target = Target.parse(f"127.0.0.1:{load.port}")
    head, tail = chat.envelope("stamped", Output(tokens=1))
    messages = [chat.message({"role": "user", "content": prompt.decode()}) for prompt in load.prompts]
    timeouts = Timeouts(first_token_s=60, stall_s=60)
    found: list[tuple[Exchange, int]] = []
    account = Account()

    def lane() -> None:
        connection = Connection(target)
        while (prompt := load.next_prompt()) is not None:
            events = StampedEvents()
            parts = (head, messages[prompt], tail)
            request = Request(chat.PATH, parts, events=lambda made=events: made)
            exchange = connection.exchange(request, timeouts)
            if exchange.error is not None:
                raise SystemExit(f"{exchange.error}: {exchange.message}")
            assert events.first_sent_ns is not None
            found.append((exchange, events.first_sent_ns))
        connection.close()

    def begin() -> None:
        StampedEvents.tokens = 0
        account.begin()

    load.start()
    if load.measured_from_ns <= load.started_ns:
        begin()
    else:
        gevent.spawn_later((load.measured_from_ns - load.started_ns) / 1e9, begin)
    lanes = [gevent.spawn(lane) for _ in range(load.streams)]
    gevent.joinall(lanes, raise_error=True)
    cost = account.end()
    kept = [(x, sent) for x, sent in found if x.send_ns >= load.measured_from_ns]
    report(
        ttft_error_us=ranks([((x.first_token_ns or 0) - sent) / 1e3 for x, sent in kept]),
        ttft_ms=ranks([((x.first_token_ns or 0) - (x.sent_ns or 0)) / 1e6 for x, _ in kept]),
        lag_us=ranks([(x.lag_ns or 0) / 1e3 for x, _ in kept]),
        turns=len(kept),
        coalesced=sum(x.coalesced for x, _ in kept),
        chunks=StampedEvents.tokens,
        **cost,
    )


if __name__ == "__main__":
    main(Load())
