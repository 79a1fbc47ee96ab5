"""External tiers behind a KV connector: what is found there, what loading and storing it costs."""

from __future__ import annotations

from collections.abc import Callable, Hashable

from loadgen.sim.profile import Arm, Tier
from loadgen.sim.store import PrefixStore
from loadgen.sim.streams import Stream


class ExternalTier:
    """One tier: its cache by chunks, its link, and the buffer that takes writes before they drain."""

    def __init__(self, tier: Tier, kv_bytes: int, on_empty: Callable[[Stream], None] | None) -> None:
        self.tier = tier
        self.name = tier.name
        self._kv_bytes = kv_bytes
        capacity = None if tier.capacity_bytes is None else int(tier.capacity_bytes / (kv_bytes * tier.chunk))
        self.store = PrefixStore(tier.chunk, capacity, tier.evict, on_empty)
        self.bytes_s = tier.read_gb_s * 1e9
        self._loads = 0
        self._dirty = 0.0  # bytes written and not yet drained, as of _dirty_at_s
        self._dirty_at_s = 0.0
        self.read_bytes = 0
        self.written_bytes = 0
        self.stalled_s = 0.0

    def read(self, tokens: int) -> int:
        """Count a load of `tokens`; its bytes."""
        size = tokens * self._kv_bytes
        self.read_bytes += size
        return size

    def fails(self) -> bool:
        """Whether the load that begins now is one of those that fail."""
        self._loads += 1
        return self.tier.fail_every > 0 and self._loads % self.tier.fail_every == 0

    def write_s(self, tokens: int, at_s: float) -> float:
        """Seconds for which storing `tokens` at time `at_s` blocks the engine: the copy, then a full buffer."""
        if not tokens:
            return 0.0
        tier = self.tier
        size = tokens * self._kv_bytes
        self.written_bytes += size
        spent = tier.store_s_per_token * tokens
        if tier.write_gb_s is None:
            return spent
        rate = tier.write_gb_s * 1e9
        ends = at_s + spent
        drained = (ends - self._dirty_at_s) * rate
        self._dirty = max(min(self._dirty, tier.write_rest_bytes), self._dirty - drained) + size
        stall = max(0.0, self._dirty - tier.write_buffer_bytes) / rate
        self._dirty -= stall * rate
        self._dirty_at_s = ends + stall
        self.stalled_s += stall
        return spent + stall


class Found:
    """Result of a lookup: `tokens` from the start of the prompt, and which tier has which part of them."""

    __slots__ = ("parts", "tokens")

    def __init__(self) -> None:
        self.tokens = 0
        self.parts: list[tuple[ExternalTier, int, int]] = []


class Connector:
    """All external tiers of an arm, fastest first."""

    def __init__(self, arm: Arm, kv_bytes: int, on_empty: Callable[[Stream], None] | None = None) -> None:
        self.synchronous = arm.connector == "sync"
        self.tiers = [ExternalTier(tier, kv_bytes, on_empty) for tier in arm.tiers]
        self.throttled = any(
            tier.write_gb_s is not None for tier in arm.tiers
        )  # what storing costs depends on when
        self._staging_tokens = 1 << 62 if arm.staging_bytes is None else int(arm.staging_bytes / kv_bytes)

    def lookup(self, space: Hashable, stream: Stream, tokens: int) -> Found:
        """The longest run of whole chunks from token 0, each in whichever tier has it."""
        found = Found()
        tokens = min(tokens, self._staging_tokens)
        extended = bool(self.tiers)
        while extended:
            extended = False
            for tier in self.tiers:
                chunk = tier.tier.chunk
                start = found.tokens // chunk
                end = tier.store.match(space, stream, tokens // chunk, start)
                if end > start:
                    found.parts.append((tier, start * chunk, end * chunk))
                    found.tokens = end * chunk
                    extended = True
        return found

    def load(self, found: Found, space: Hashable, stream: Stream, hit: int) -> list[tuple[ExternalTier, int]]:
        """What has to come from which tier, in bytes, for all that lies beyond the first `hit` tokens; keeps it young.

        What came from a slower tier is kept in the faster ones too, as a connector's CPU tier does.
        """
        loads = []
        for tier, first, end in found.parts:
            chunk = tier.tier.chunk
            tier.store.touch(space, stream, end // chunk, first // chunk)
            if end > hit:
                loads.append((tier, tier.read(end - max(first, hit))))
        for upper in self.tiers[:-1]:
            upper.store.insert(space, stream, found.tokens // upper.tier.chunk)
        return loads

    def save_s(self, space: Hashable, stream: Stream, tokens: int, at_s: float) -> float:
        """Store all whole chunks of the first `tokens` tokens; seconds for which that blocks the engine."""
        spent = 0.0
        for tier in self.tiers:
            chunk = tier.tier.chunk
            made = tier.store.insert(space, stream, tokens // chunk)
            spent += tier.write_s(made * chunk, at_s + spent)
        return spent
