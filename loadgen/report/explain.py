"""Why a TTFT is what it is: its split into client, upload, queue, load, recompute and rest, beside the floor.

The server's counters are read at moments at which nothing was in flight. Between two such pages lie some turns; where
all of them are sourced, ran one after another and are all that the server counted, its queue and prefill seconds are
theirs. Everything is a sum over turns, so that a round with one page around it is explained as well as a single turn.

Times are endpoint seconds. Formulas (reference: causal attention): T_cold(L) = T0 + a L + b L^2; computing the tail of a
prompt of L tokens of which h are cached takes a (L - h) + b (L^2 - h^2).
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
import orjson

from loadgen.measure.probes.server import ServerCounters, ServerDelta, delta, from_series
from loadgen.report.columns import ABSENT, CLASSES, Turns

Column = Literal["prefill", "queue"]
# Connectors that load inside the forward pass; all others wait before they are scheduled (read in vLLM's source).
_SYNCHRONOUS = ("LMCacheConnectorV1", "ExampleConnector")


class FitPoint(NamedTuple):
    """One length of the cold curve, all its turns averaged."""

    tokens: int
    turns: int
    measured_s: float
    predicted_s: float

    @property
    def residual(self) -> float:
        """Relative: 0.05 is measured 5 % above the curve."""
        return self.measured_s / self.predicted_s - 1


@dataclass(frozen=True)
class ColdFit:
    """T_cold(L) = t0_s + a L + b L^2. `spare` is the number of lengths beyond the parameters: 0 leaves nothing to judge by."""

    t0_s: float
    a: float  # seconds a token
    b: float  # seconds a token squared
    points: tuple[FitPoint, ...]
    spare: int

    def compute_s(self, tokens: int, cached: int = 0) -> float:
        """Seconds to compute a prompt of `tokens` behind `cached` tokens of KV."""
        return self.a * (tokens - cached) + self.b * (tokens * tokens - cached * cached)

    def cold_s(self, tokens: int) -> float:
        return self.t0_s + self.compute_s(tokens)

    @property
    def worst(self) -> float:
        """Largest relative residual, without its sign."""
        return max(abs(point.residual) for point in self.points)


def fit_cold(turns: Sequence[tuple[int, float]]) -> ColdFit | None:
    """Fit T0, a, b >= 0 to (prompt tokens, TTFT in seconds) of cold turns, by relative error; null without any.

    Every length counts once, by the mean of its turns. Three lengths or more give all three parameters, two give
    a and b, one gives a alone: a tail is then charged by its share of the tokens, at most a factor of two too low.
    """
    by_length: dict[int, list[float]] = {}
    for tokens, seconds in turns:
        if tokens > 0 and seconds > 0:
            by_length.setdefault(tokens, []).append(seconds)
    if not by_length:
        return None
    lengths = np.array(sorted(by_length), dtype=float)
    times = np.array([np.mean(by_length[int(n)]) for n in lengths])
    powers = {1: (1,), 2: (1, 2)}.get(len(lengths), (0, 1, 2))
    best: tuple[float, dict[int, float]] | None = None
    for count in range(
        1, len(powers) + 1
    ):  # non-negative least squares of at most three parameters: try all subsets
        for chosen in itertools.combinations(powers, count):
            rows = np.stack([lengths**p for p in chosen], axis=1) / times[:, None]
            size = np.linalg.norm(rows, axis=0)
            found = np.linalg.lstsq(rows / size, np.ones(len(times)), rcond=None)[0] / size
            if (found < 0).any():
                continue
            error = float(((rows @ found - 1) ** 2).sum())
            if best is None or error < best[0] - 1e-15:
                best = error, dict(zip(chosen, map(float, found), strict=True))
    assert best is not None  # one positive parameter always fits positive times
    t0, a, b = (best[1].get(power, 0.0) for power in (0, 1, 2))
    points = tuple(
        FitPoint(int(n), len(by_length[int(n)]), float(t), t0 + a * float(n) + b * float(n) ** 2)
        for n, t in zip(lengths, times, strict=True)
    )
    return ColdFit(t0, a, b, points, len(lengths) - len(powers))


@dataclass
class Parts:
    """Sums over turns, in endpoint seconds; `total_s` is what the other times add up to."""

    turns: int = 0
    total_s: float = 0.0
    client_s: float = 0.0  # the turn could have been sent and our loop was late
    upload_s: float = 0.0
    queue_s: float = 0.0
    load_s: float = 0.0
    recompute_s: float = 0.0
    rest_s: float = (
        0.0  # HTTP, tokenizing, the way of the first token back; and what the counters do not tell
    )
    external_tokens: int = 0
    computed_tokens: int = 0
    floor_recompute_s: float | None = None  # the fitted rate, nothing else running
    floor_load_s: float | None = None  # bytes over the link's rate

    def add(self, other: Parts) -> None:
        for name in ("turns", "external_tokens", "computed_tokens"):
            setattr(self, name, getattr(self, name) + getattr(other, name))
        for name in TIMES:
            setattr(self, name, getattr(self, name) + getattr(other, name))


TIMES = ("total_s", "client_s", "upload_s", "queue_s", "load_s", "recompute_s", "rest_s")


@dataclass(frozen=True)
class Explanation:
    """Splits by class of turn (`mixed` where a stretch between two pages held several), and what they rest on."""

    groups: dict[str, Parts]
    explained: int
    turns: int
    load_in: Column
    why: str  # how the column of the load time was decided
    fit: ColdFit | None
    link_bytes_s: float | None = None
    kv_bytes_per_token: float | None = None  # given, or as counted by the connector

    @property
    def coverage(self) -> float:
        return self.explained / self.turns if self.turns else 0.0


@dataclass(frozen=True)
class Page:
    """One stored `/metrics` page, on the wall-time axis of the samples."""

    wall_ns: int
    counters: ServerCounters


@dataclass
class _Stretch:
    """The turns between two pages at which the server was idle."""

    change: ServerDelta
    rows: list[int] = field(default_factory=list)


def read_pages(run_dir: Path) -> list[Page]:
    """The pages in `server.jsonl`, in order of time; empty where there are none, or pages of several endpoints."""
    try:
        lines = (run_dir / "server.jsonl").read_bytes().splitlines()
    except OSError:
        return []
    pages, endpoints = [], set()
    for line in lines:
        try:
            stored = orjson.loads(line)
            page = Page(int(stored["wall_ns"]), from_series(stored["counters"]))
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            continue  # the last line of a killed run
        pages.append(page)
        endpoints.add(stored.get("endpoint"))
    return sorted(pages, key=lambda page: page.wall_ns) if len(endpoints) == 1 else []


def load_column(connector: str | None, changes: Sequence[tuple[ServerDelta, bool]]) -> tuple[Column, str]:
    """Where the load time lies, and why we think so.

    `connector` is the fingerprint's name. Where that does not say, the counters of stretches with external tokens
    (True) and without (False) decide: a connector that loads before scheduling makes its turns queue.
    """
    if connector and connector not in ("some", "none", "unknown"):
        if any(name in _SYNCHRONOUS for name in connector.split("+")):
            return "prefill", f"{connector} loads inside the forward pass"
        return "queue", f"{connector} loads before the request is scheduled"
    queue = sum(change.counters.get("queue_s", 0.0) for change, external in changes if external)
    prefill = sum(change.counters.get("prefill_s", 0.0) for change, external in changes if external)
    if queue + prefill == 0:
        return "prefill", "assumed: no turn with external tokens shows it"
    if queue > prefill:
        return (
            "queue",
            "assumed: turns with external tokens spent more time queued than in prefill, alone in flight",
        )
    return "prefill", "assumed: turns with external tokens hardly queued, alone in flight"


def explain(
    turns: Turns,
    pages: Sequence[Page],
    *,
    scale: float,
    connector: str | None = None,
    kv_bytes_per_token: float | None = None,
    link_bytes_s: float | None = None,
    fit: ColdFit | None = None,
) -> Explanation | None:
    """Split the TTFT of every turn that the pages can vouch for; null where they vouch for none.

    `scale` is endpoint seconds per wall second. `fit` comes from cold turns of different length; without one it is
    made from the run's own cold turns. The floor of loading needs the link's rate (bytes an endpoint second) and the bytes of
    KV a token, which are the connector's own count where it has one and they are not given.
    """
    stretches = _stretches(turns, pages)
    if not stretches:
        return None
    fit = fit or fit_cold(_cold(turns, scale))
    kv_bytes_per_token = kv_bytes_per_token or _counted_bytes(turns, stretches)
    externals = [bool(turns.tiers[s.rows, 2].sum()) for s in stretches]
    column, why = load_column(connector, list(zip((s.change for s in stretches), externals, strict=True)))
    groups: dict[str, Parts] = {}
    for stretch in stretches:
        classes = {int(code) for code in turns.klass[stretch.rows]}
        name = CLASSES[classes.pop()] if len(classes) == 1 else "mixed"
        groups.setdefault(name, Parts()).add(_split(turns, stretch, scale, fit, column))
    for name, parts in groups.items():
        rows = [r for s in stretches for r in s.rows if name == "mixed" or CLASSES[turns.klass[r]] == name]
        if fit is not None and len(fit.points) > 1 and name != "mixed":
            parts.floor_recompute_s = sum(_tail_s(turns, row, fit) for row in rows)
        if kv_bytes_per_token and link_bytes_s:
            parts.floor_load_s = parts.external_tokens * kv_bytes_per_token / link_bytes_s
    explained = sum(parts.turns for parts in groups.values())
    return Explanation(groups, explained, len(turns), column, why, fit, link_bytes_s, kv_bytes_per_token)


def _counted_bytes(turns: Turns, stretches: Sequence[_Stretch]) -> float | None:
    """Bytes that the connector loaded for each external token; null where it counts none (0 is no proof of nothing)."""
    tokens, loaded = 0, 0.0
    for stretch in stretches:
        external = int(turns.tiers[stretch.rows, 2].sum())
        found = stretch.change.counters.get("load_bytes", 0.0)
        if external and found:
            tokens, loaded = tokens + external, loaded + found
    return loaded / tokens if tokens else None


def _cold(turns: Turns, scale: float) -> list[tuple[int, float]]:
    """(prompt tokens, TTFT) of turns that are proven cold and well measured."""
    good = turns.ok & (turns.cached_tokens == 0) & (turns.first_token_ns != ABSENT) & ~turns.coalesced
    seconds = (turns.first_token_ns - turns.send_ns) / 1e9 * scale
    return [(int(n), float(s)) for n, s in zip(turns.prompt_tokens[good], seconds[good], strict=True)]


def _stretches(turns: Turns, pages: Sequence[Page]) -> list[_Stretch]:
    order = np.argsort(turns.send_ns, kind="stable")
    send, end = turns.send_ns[order], turns.end_ns[order]
    if len(order) == 0 or len(pages) < 2:
        return []
    busy_until = np.maximum.accumulate(end)
    alone = np.ones(len(order), dtype=bool)  # nothing sent before it was still in flight
    alone[1:] = send[1:] >= busy_until[:-1]
    sourced = turns.ok & (turns.tiers[:, 0] != ABSENT) & (turns.first_token_ns != ABSENT)
    idle = []  # (page, number of turns sent before it), for pages while nothing was in flight
    for page in pages:
        before = int(np.searchsorted(send, page.wall_ns, side="right"))
        if before == 0 or busy_until[before - 1] <= page.wall_ns:
            idle.append((page, before))
    found = []
    for (first, start), (last, stop) in itertools.pairwise(idle):
        rows = order[start:stop]
        if stop == start or not (alone[start:stop].all() and sourced[rows].all()):
            continue
        change = delta(first.counters, last.counters)
        counted = change.tokens("ttft_n")
        if change.restarted or counted not in (None, stop - start):
            continue
        if change.tokens("prompt_tokens") != int(turns.prompt_tokens[rows].sum()):
            continue  # somebody else used the server too
        found.append(_Stretch(change, [int(row) for row in rows]))
    return found


def _tail_s(turns: Turns, row: int, fit: ColdFit) -> float:
    prompt, computed = int(turns.prompt_tokens[row]), int(turns.tiers[row, 0])
    return fit.compute_s(prompt, prompt - computed)


def _split(turns: Turns, stretch: _Stretch, scale: float, fit: ColdFit | None, column: Column) -> Parts:
    rows = stretch.rows

    def seconds(ns: Any) -> float:
        return float(np.sum(ns)) / 1e9 * scale

    sent = np.where(turns.sent_ns[rows] == ABSENT, turns.send_ns[rows], turns.sent_ns[rows])
    parts = Parts(
        turns=len(rows),
        client_s=seconds(turns.client_delay_ns[rows]),
        upload_s=seconds(sent - turns.send_ns[rows]),
        external_tokens=int(turns.tiers[rows, 2].sum()),
        computed_tokens=int(turns.tiers[rows, 0].sum()),
    )
    parts.total_s = seconds(turns.first_token_ns[rows] - turns.send_ns[rows]) + parts.client_s
    left = parts.total_s - parts.client_s - parts.upload_s
    queue = min(stretch.change.counters.get("queue_s", 0.0), left)
    prefill = min(stretch.change.counters.get("prefill_s", 0.0), left - queue)
    if not parts.external_tokens:
        parts.queue_s, parts.recompute_s = queue, prefill
    elif column == "queue":
        parts.load_s, parts.recompute_s = queue, prefill
    else:
        tails = prefill if fit is None else sum(_tail_s(turns, row, fit) for row in rows)
        parts.queue_s, parts.recompute_s = queue, min(prefill, tails)
        parts.load_s = prefill - parts.recompute_s
    parts.rest_s = left - parts.queue_s - parts.load_s - parts.recompute_s
    return parts
