"""The server's counters beside the load: around turns that are alone in flight, around rounds, and every few seconds."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns

import gevent
import orjson

from loadgen.errors import InputError
from loadgen.measure.probes import server
from loadgen.measure.sample import Tiers
from loadgen.replay.job import Job
from loadgen.replay.transport import request_headers, tls_context
from loadgen.replay.wire.exchange import Exchange
from loadgen.replay.wire.fetch import fetch
from loadgen.replay.wire.target import Target

TICK_S = 1.0
_RETRIES, _RETRY_S = 3, 0.02


def reader(target: Target, job: Job) -> Callable[[], server.ServerCounters | None]:
    """Reads one page of an endpoint the way the run's own requests go; None when the server does not give one right now."""
    headers = request_headers(job.api_key_env, job.auth_scheme, job.api, job.headers)
    tls = tls_context(job.ca_file)
    proxy = Target.parse(job.proxy) if job.proxy else None

    def read() -> server.ServerCounters | None:
        try:
            page = fetch(target, "/metrics", headers=headers, tls_context=tls, proxy=proxy)[0]
            return server.parse(page.decode("utf-8", "replace"))
        except (InputError, ValueError):
            return None

    return read


class Isolation:
    """Attributes counters to turns that are alone in flight: the page after one turn is the page before the next."""

    def __init__(self, target: Target, job: Job) -> None:
        self._read = reader(target, job)
        self._before: server.ServerCounters | None = None

    def open(self) -> None:
        """Take the page before the first turn."""
        self._before = self._read()

    def tiers(self, exchange: Exchange) -> Tiers | None:
        """Where this turn's prompt came from, when the counters prove it."""
        usage = exchange.usage
        before = self._before
        for _ in range(_RETRIES):
            after = self._read()
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

    def __init__(self, path: Path, target: Target, job: Job) -> None:
        self._path, self._target, self._read = path, target, reader(target, job)
        self._greenlet: gevent.Greenlet | None = None

    def take(self, label: str) -> None:
        """Scrape now and store under `label`; a server without a page leaves nothing."""
        counters = self._read()
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
