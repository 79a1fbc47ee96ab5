"""The server's own account: counters of one `/metrics` page, their differences, and what a lone turn came from.

Pure functions over text. Who fetches the page, and when, is the caller's business: replay does it around
sweep rounds, the doctor around its probes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from loadgen.measure.probes.exposition import Series, read_series, render, series_key
from loadgen.measure.probes.names import CACHE_CONFIG, CONNECTOR_SIGNS, COUNTERS, GAUGES, WANTED, Quantity
from loadgen.measure.sample import Tiers


class ServerCounters(msgspec.Struct, frozen=True, kw_only=True):
    """One page in canonical names (`names.COUNTERS`, `names.GAUGES`); a quantity that the page lacks is absent.

    `counters` add up over engines since the process started: tokens, requests, seconds or bytes as the last
    word of the name says. `gauges` are the moment's. `cache` holds the labels of the cache configuration of
    the first engine, `engines` how many reported one, `capacity_tokens` the KV pool of all of them together
    (null where the page does not tell). `series` is what was read, by `name{labels}`: the form in which
    `server.jsonl` stores a page.
    """

    counters: dict[str, float]
    gauges: dict[str, float]
    cache: dict[str, str]
    engines: int
    capacity_tokens: int | None
    signs: tuple[str, ...]  # connectors whose names are on the page
    series: dict[str, float]

    @property
    def family(self) -> str | None:
        """`vllm`, `sglang`, `llamacpp` or `lmcache`, from the names on the page; null for a page of none of them."""
        families = (
            "vllm:",
            "sglang:",
            "llamacpp:",
            "lmcache",
        )  # a vLLM page may carry LMCache's names beside its own
        return next((f.rstrip(":") for f in families if any(key.startswith(f) for key in self.series)), None)

    @property
    def in_flight(self) -> int | None:
        """Requests that run or wait at this moment, as the server sees it."""
        running, waiting = self.gauges.get("running"), self.gauges.get("waiting")
        return None if running is None or waiting is None else int(running + waiting)


class ServerDelta(msgspec.Struct, frozen=True, kw_only=True):
    """Differences of the counters that both pages have.

    `restarted` is true when the two pages are not of one process's life (a counter fell, or the start time
    moved: a restart, or another replica behind the same address). Then no difference means anything, and
    `counters` is empty.
    """

    counters: dict[str, float]
    restarted: bool

    def tokens(self, name: str) -> int | None:
        value = self.counters.get(name)
        return None if value is None else round(value)


def parse(page: str) -> ServerCounters:
    """Read one `/metrics` page (vLLM, SGLang or LMCache).

    A page of something else, HTML included, gives empty counters. Raises ValueError for a damaged page, such
    as one cut in the middle of a wanted line.
    """
    found = read_series(page, WANTED)
    by_name: dict[str, list[Series]] = {}
    for series in found:
        by_name.setdefault(series.name, []).append(series)
    configs = [series.labels for name in CACHE_CONFIG for series in by_name.get(name, ())]
    gauges = _values(GAUGES, by_name)
    start = "\n" + page if not page.startswith("\n") else page
    return ServerCounters(
        counters=_values(COUNTERS, by_name),
        gauges=gauges,
        cache=dict(configs[0]) if configs else {},
        engines=len(configs),
        capacity_tokens=_capacity(configs, gauges),
        signs=tuple(name for sign, name in CONNECTOR_SIGNS.items() if sign in start),
        series={series_key(s): s.value for s in found if not math.isnan(s.value)},
    )


def from_series(series: Mapping[str, float]) -> ServerCounters:
    """`ServerCounters` of a stored page (`server.jsonl`, `ServerCounters.series`)."""
    return parse(render(series))


def delta(before: ServerCounters, after: ServerCounters) -> ServerDelta:
    """What the server counted between two pages."""
    started = before.gauges.get("started_s"), after.gauges.get("started_s")
    moved = None not in started and started[0] != started[1]
    both = before.counters.keys() & after.counters.keys()
    fell = any(after.counters[name] < before.counters[name] for name in both)
    if moved or fell:
        return ServerDelta(counters={}, restarted=True)
    return ServerDelta(
        counters={name: after.counters[name] - before.counters[name] for name in COUNTERS if name in both},
        restarted=False,
    )


def tiers(change: ServerDelta, prompt_tokens: int, cached_tokens: int | None) -> Tiers | None:
    """Where the prompt of a turn came from that was alone in flight between the two pages of `change`.

    `prompt_tokens` and `cached_tokens` are the answer's own usage. Null when the counters do not prove it:
    the server restarted, it counted another number of prompt tokens than this turn had (somebody else's turn,
    or the page was taken before the server had counted), or its sources contradict the usage by more than the
    one token that is recomputed on a full hit. Where the server does not tell HBM from external, the cached
    part is `unknown`.
    """
    if change.restarted or change.tokens("prompt_tokens") != prompt_tokens:
        return None
    hbm, external = change.tokens("hbm_tokens"), change.tokens("external_tokens")
    if hbm is None and external is None:
        cached = change.tokens("cached_tokens")
        if cached is None or not 0 <= cached <= prompt_tokens or _contradicts(cached, cached_tokens):
            return None
        return Tiers(compute=prompt_tokens - cached, unknown=cached)
    hbm, external = hbm or 0, external or 0
    # Sources are counted once a request; the older hit counters also at every failed admission.
    if hbm + external > prompt_tokens or _contradicts(hbm + external, cached_tokens):
        return None
    return Tiers(compute=prompt_tokens - hbm - external, hbm=hbm, external=external)


def _contradicts(counted: int, reported: int | None) -> bool:
    return reported is not None and abs(counted - reported) > 1


def _values(table: Mapping[str, Quantity], by_name: Mapping[str, list[Series]]) -> dict[str, float]:
    values: dict[str, float] = {}
    for field, quantity in table.items():
        for alias in quantity.aliases:
            matching = [s.value for s in by_name.get(alias.name, ()) if alias.matches(s.labels)]
            matching = [value for value in matching if math.isfinite(value)]
            if matching:
                values[field] = max(matching) if quantity.fold == "max" else math.fsum(matching)
                break
    return values


def _capacity(configs: Iterable[Mapping[str, str]], gauges: Mapping[str, float]) -> int | None:
    total = 0
    for labels in configs:
        tokens = _whole(labels.get("kv_cache_size_tokens"))
        if tokens is None:  # the label is newer than 0.20
            blocks = _whole(labels.get("num_gpu_blocks") or labels.get("num_pages"))
            size = _whole(labels.get("block_size") or labels.get("page_size"))
            if blocks is None or size is None:
                return None
            tokens = blocks * size
        total += tokens
    if total:
        return total
    pool = gauges.get("max_total_tokens")
    return None if pool is None else round(pool)


def _whole(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdigit() else None
