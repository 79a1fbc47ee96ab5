"""One tier's prefix cache: blocks of a fixed number of tokens, least recently used first, in runs.

vLLM frees a request's blocks tail first into one queue and evicts from its front. Blocks of one request lie
next to each other there, so the queue is kept as *extents* (runs of blocks of one stream) and the cost of a
turn depends on the number of runs, not on 8,750 blocks. The order is the same as block by block
(`tests/sim/test_store.py` compares the two).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Literal

from loadgen.sim.streams import Stream

Evict = Literal["tail", "head"]
Held = list[tuple["Line", int, int]]
"""What one request holds: (line, first, end) in blocks, in prompt order."""


class Extent:
    __slots__ = ("end", "first", "line", "next", "previous", "refs")

    def __init__(self, line: Line, first: int, end: int, refs: int) -> None:
        self.line = line
        self.first = first
        self.end = end
        self.refs = refs
        self.previous: Extent | None = None  # in the queue both are set
        self.next: Extent | None = None


class Line:
    """The resident extents of one stream in one namespace, in order."""

    __slots__ = ("extents", "key")

    def __init__(self, key: tuple[Hashable, Stream]) -> None:
        self.key = key
        self.extents: list[Extent] = []

    def covered(self, first: int, end: int) -> int:
        """End of the resident run that starts at `first`, at most `end`."""
        for extent in self.extents:
            if extent.first > first:
                break
            if extent.end > first:
                first = extent.end
                if first >= end:
                    return end
        return first


class PrefixStore:
    """Capacity and LRU of one tier; `on_empty` hears of streams that no store holds any more. All amounts are blocks of `block` tokens except where a name says tokens."""

    def __init__(
        self,
        block: int,
        capacity: int | None,
        evict: Evict = "tail",
        on_empty: Callable[[Stream], None] | None = None,
    ) -> None:
        self.block = block
        self.capacity = capacity if capacity is not None else 1 << 62
        self.used = 0  # all blocks but those that were never used
        self.idle = 0  # of these, held by nobody: in the queue
        self.evicted = 0
        self._tail_first = evict == "tail"
        self._unbounded = capacity is None  # then the order of eviction is nobody's business
        self._on_empty = on_empty
        self._lines: dict[tuple[Hashable, Stream], Line] = {}
        self._first: Extent | None = None  # evicted next
        self._last: Extent | None = None

    @property
    def available(self) -> int:
        return self.capacity - self.used + self.idle

    def match(self, space: Hashable, stream: Stream, blocks: int, start: int = 0) -> int:
        """End of the run of resident blocks from block `start` on, at most `blocks`."""
        lines = self._lines
        for part, first, end in stream.segments(blocks, self.block):
            if end <= start:
                continue
            first = max(first, start)
            line = lines.get((space, part))
            if line is None:
                return first
            covered = line.covered(first, end)
            if covered < end:
                return covered
        return blocks

    def idle_in(self, space: Hashable, stream: Stream, blocks: int) -> int:
        """How many of the first `blocks` blocks, all resident, are held by nobody."""
        return sum(
            min(extent.end, end) - max(extent.first, first)
            for part, first, end in stream.segments(blocks, self.block)
            for extent in self._lines[space, part].extents
            if extent.refs == 0 and extent.end > first and extent.first < end
        )

    def hold(self, space: Hashable, stream: Stream, blocks: int, start: int = 0) -> Held:
        """Take blocks [start, blocks), all resident, out of the queue until `release`."""
        held: Held = []
        for part, first, end in stream.segments(blocks, self.block):
            if end <= start:
                continue
            first = max(first, start)
            line = self._lines[space, part]
            self._hold(line, first, end)
            held.append((line, first, end))
        return held

    def reserve(self, blocks: int) -> bool:
        """Make room for `blocks` anonymous blocks, evicting as needed; false (and nothing done) if there is none."""
        lacking = self.used + blocks - self.capacity
        if lacking > self.idle:
            return False
        if lacking > 0:
            self._evict(lacking)
        self.used += blocks
        return True

    def unreserve(self, blocks: int) -> None:
        """Give back reserved blocks. vLLM, too, reuses blocks without a hash before it evicts any other."""
        self.used -= blocks

    def fill(self, held: Held, space: Hashable, stream: Stream, first: int, end: int) -> int:
        """Turn reserved blocks into resident ones, held by the caller; returns how many were new.

        Blocks that somebody else made resident meanwhile stay the caller's private copy (still reserved).
        """
        made = 0
        for part, low, high in stream.segments(end, self.block):
            low = max(low, first)
            if low >= high:
                continue
            line = self._line(space, part)
            for start, stop in _gaps(line, low, high):
                last = held[-1] if held else None
                grown = line.extents[-1] if line.extents else None
                if (
                    last is not None
                    and grown is not None
                    and last[0] is line
                    and last[2] == start == grown.end
                    and grown.refs == 1
                    and grown.first >= last[1]
                ):
                    grown.end = stop
                    held[-1] = (line, last[1], stop)
                else:
                    _insert(line, Extent(line, start, stop, 1))
                    held.append((line, start, stop))
                made += stop - start
        return made

    def insert(self, space: Hashable, stream: Stream, blocks: int) -> int:
        """Store the first `blocks` blocks as most recently used; returns how many were new.

        What does not fit even after evicting everybody else is left out, the tail first.
        """
        if self._unbounded:
            return self._add(space, stream, blocks)
        resident: Held = []
        missing: Held = []
        for part, low, high in stream.segments(blocks, self.block):
            line = self._line(space, part)
            holes = _gaps(line, low, high)
            at = low
            for start, stop in [*holes, (high, high)]:
                if at < start:
                    self._hold(line, at, start)
                    resident.append((line, at, start))
                if start < stop:
                    missing.append((line, start, stop))
                at = stop
        made = 0
        for line, start, stop in missing:
            room = min(stop - start, self.available)
            if room <= 0 or not self.reserve(room):
                break
            _insert(line, Extent(line, start, start + room, 1))
            resident.append((line, start, start + room))
            made += room
        resident.sort(key=lambda part: part[1])
        self.release(resident)
        for line, _, _ in missing:
            self._drop_if_empty(line)
        return made

    def _add(self, space: Hashable, stream: Stream, blocks: int) -> int:
        """`insert` where nothing is ever evicted."""
        made = 0
        for part, first, end in stream.segments(blocks, self.block):
            line = self._line(space, part)
            for start, stop in _gaps(line, first, end):
                made += stop - start
                grown = line.extents[-1] if line.extents else None
                if grown is not None and grown.end == start:
                    grown.end = stop
                else:
                    extent = Extent(line, start, stop, 0)
                    _insert(line, extent)
                    self._append(extent)
        self.used += made
        self.idle += made
        return made

    def touch(self, space: Hashable, stream: Stream, blocks: int, start: int = 0) -> None:
        """Make blocks [start, blocks), all resident, the most recently used."""
        if not self._unbounded:
            self.release(self.hold(space, stream, blocks, start))

    def release(self, held: Held) -> None:
        """Give held blocks back; those that nobody holds any more join the queue in the order of eviction."""
        last: Extent | None = None
        for line, first, end in reversed(held) if self._tail_first else held:
            extents = line.extents
            inside = [e for e in extents if e.end > first and e.first < end]
            for extent in reversed(inside) if self._tail_first else inside:
                extent.refs -= 1
                if extent.refs:
                    continue
                self.idle += extent.end - extent.first
                if (
                    last is not None
                    and last.line is line
                    and (last.first == extent.end or last.end == extent.first)
                ):
                    last.first, last.end = min(last.first, extent.first), max(last.end, extent.end)
                    extents.remove(extent)
                    continue
                self._append(extent)
                last = extent

    def clear(self) -> bool:
        """Forget everything that nobody holds; true if nothing is left."""
        self._evict(self.idle)
        return self.used == 0

    # -- inside

    def _line(self, space: Hashable, stream: Stream) -> Line:
        line = self._lines.get((space, stream))
        if line is None:
            line = self._lines[space, stream] = Line((space, stream))
            stream.cached += 1
        return line

    def _hold(self, line: Line, first: int, end: int) -> None:
        extents = line.extents
        at = 0
        while at < len(extents):
            extent = extents[at]
            if extent.first >= end:
                break
            if extent.end > first:
                if extent.first < first:
                    self._split(extents, at, first)
                    at += 1
                    continue
                if extent.end > end:
                    self._split(extents, at, end)
                if extent.refs == 0:
                    self.idle -= extent.end - extent.first
                    self._unlink(extent)
                extent.refs += 1
            at += 1

    def _split(self, extents: list[Extent], at: int, middle: int) -> None:
        """Cut extents[at] at block `middle`; the part that is evicted sooner stays ahead in the queue."""
        extent = extents[at]
        rest = Extent(extent.line, middle, extent.end, extent.refs)
        extent.end = middle
        extents.insert(at + 1, rest)
        if extent.refs == 0:
            if self._tail_first:
                self._link(extent.previous, rest, extent)
            else:
                self._link(extent, rest, extent.next)

    def _append(self, extent: Extent) -> None:
        self._link(self._last, extent, None)

    def _link(self, before: Extent | None, extent: Extent, after: Extent | None) -> None:
        extent.previous, extent.next = before, after
        if before is None:
            self._first = extent
        else:
            before.next = extent
        if after is None:
            self._last = extent
        else:
            after.previous = extent

    def _unlink(self, extent: Extent) -> None:
        before, after = extent.previous, extent.next
        if before is None:
            self._first = after
        else:
            before.next = after
        if after is None:
            self._last = before
        else:
            after.previous = before
        extent.previous = extent.next = None

    def _evict(self, blocks: int) -> None:
        self.evicted += blocks
        self.used -= blocks
        self.idle -= blocks
        while blocks > 0:
            extent = self._first
            assert extent is not None
            size = extent.end - extent.first
            if size > blocks:
                if self._tail_first:
                    extent.end -= blocks
                else:
                    extent.first += blocks
                return
            blocks -= size
            self._unlink(extent)
            extent.line.extents.remove(extent)
            self._drop_if_empty(extent.line)

    def _drop_if_empty(self, line: Line) -> None:
        if not line.extents and self._lines.get(line.key) is line:
            del self._lines[line.key]
            stream = line.key[1]
            stream.cached -= 1
            if not stream.cached and self._on_empty is not None:
                self._on_empty(stream)


def _insert(line: Line, extent: Extent) -> None:
    extents = line.extents
    at = len(extents)
    while at and extents[at - 1].first > extent.first:
        at -= 1
    extents.insert(at, extent)


def _gaps(line: Line, first: int, end: int) -> list[tuple[int, int]]:
    """The parts of [first, end) that are not resident."""
    gaps = []
    for extent in line.extents:
        if extent.first >= end:
            break
        if extent.end <= first:
            continue
        if extent.first > first:
            gaps.append((first, extent.first))
        first = extent.end
    if first < end:
        gaps.append((first, end))
    return gaps
