"""The server's counters beside the load: around turns that are alone in flight, around rounds, and every few seconds."""

from __future__ import annotations

import time
from pathlib import Path
from time import monotonic_ns

import gevent
import orjson

from loadgen.errors import InputError
from loadgen.measure.probes import server
from loadgen.measure.sample import Tiers
from loadgen.replay.wire.exchange import Exchange
from loadgen.replay.wire.fetch import get_text
from loadgen.replay.wire.target import Target

TICK_S = 2.0
_RETRIES, _RETRY_S = 3, 0.02


def scrape(target: Target, headers: tuple[tuple[str, str], ...]) -> server.ServerCounters | None:
    """One page, or None when the server does not give one right now."""
    try:
        return server.parse(get_text(target, "/metrics", headers=headers))
    except (InputError, ValueError):
        return None


class Isolation:
    """Attributes counters to turns that are alone in flight: the page after one turn is the page before the next."""

    def __init__(self, target: Target, headers: tuple[tuple[str, str], ...]) -> None:
        self._target, self._headers = target, headers
        self._before: server.ServerCounters | None = None

    def open(self) -> None:
        """Take the page before the first turn."""
        self._before = scrape(self._target, self._headers)

    def tiers(self, exchange: Exchange) -> Tiers | None:
        """Where this turn's prompt came from, when the counters prove it."""
        usage = exchange.usage
        before = self._before
        for _ in range(_RETRIES):
            after = scrape(self._target, self._headers)
            self._before = after
            if before is None or after is None or usage is None or usage.prompt_tokens is None:
                return None
            found = server.tiers(server.delta(before, after), usage.prompt_tokens, usage.cached_tokens)
            if found is not None:
                return found
            gevent.sleep(_RETRY_S)  # the page may be older than the answer
        return None


class ServerLog:
    """Appends pages to `server.jsonl`, with both clocks. Kept by the master."""

    def __init__(self, path: Path, target: Target, headers: tuple[tuple[str, str], ...]) -> None:
        self._path, self._target, self._headers = path, target, headers
        self._greenlet: gevent.Greenlet | None = None

    def take(self, label: str) -> None:
        """Scrape now and store under `label`; a server without a page leaves nothing."""
        counters = scrape(self._target, self._headers)
        if counters is None or not counters.series:
            return
        line = {
            "mono_ns": monotonic_ns(),
            "wall_ns": time.time_ns(),
            "endpoint": self._target.url,
            "label": label,
            "counters": counters.series,
        }
        try:
            with self._path.open("ab") as file:
                file.write(orjson.dumps(line) + b"\n")
        except OSError:
            pass  # a full disk is reported once, by the samples' journal

    def start(self) -> None:
        self.take("start")
        self._greenlet = gevent.spawn(self._tick)

    def stop(self) -> None:
        if self._greenlet is not None:
            self._greenlet.kill()
            self._greenlet = None
            self.take("end")

    def _tick(self) -> None:
        while True:
            gevent.sleep(TICK_S)
            self.take("tick")
