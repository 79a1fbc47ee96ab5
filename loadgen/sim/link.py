"""A link that concurrent loads share in equal parts."""

from __future__ import annotations

import heapq
import math

from loadgen.sim.connector import ExternalTier


class Link:
    """Processor sharing in virtual time: every flow has got `_level` bytes since the start, so a flow ends at a level."""

    def __init__(self, tier: ExternalTier) -> None:
        self.tier = tier
        self._rate = tier.bytes_s
        self._level = 0.0
        self._at_s = 0.0
        self._flows: list[tuple[float, int, object]] = []
        self._count = 0

    def add(self, at_s: float, size: float, what: object) -> None:
        """Start a flow of `size` bytes; times must not go back."""
        self._advance(at_s)
        self._count += 1
        heapq.heappush(self._flows, (self._level + size, self._count, what))

    def next_s(self) -> float:
        """When the next flow ends if none is added; infinity while idle."""
        if not self._flows:
            return math.inf
        return self._at_s + max(0.0, self._flows[0][0] - self._level) * len(self._flows) / self._rate

    def ended(self, at_s: float) -> list[tuple[float, object]]:
        """Flows that have ended by `at_s`, as (when, what)."""
        found = []
        while (when := self.next_s()) <= at_s:
            self._advance(when)
            self._level = self._flows[0][0]
            found.append((when, heapq.heappop(self._flows)[2]))
        return found

    def _advance(self, at_s: float) -> None:
        if self._flows:
            self._level += max(0.0, at_s - self._at_s) * self._rate / len(self._flows)
        self._at_s = max(self._at_s, at_s)
