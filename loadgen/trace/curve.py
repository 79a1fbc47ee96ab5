"""Hit share against cache size: LRU stack distances of every shared token, for one interleaving of all sessions.

Mattson's stack algorithm (1970) on runs instead of blocks. A prompt is a path in the prefix tree; whoever touches a
block touches all before it, so last-use times fall along a path and whole runs share one. A run last used at time u,
with d tokens used since and h tokens of the same use nearer to the root, is found by a cache of d + h tokens and its
own. Within one use the tail counts as older: vLLM frees a request's blocks from its end.

Cost: O(log turns) a run; a path has as many runs as users with different last times, usually two or three.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from loadgen.trace.timeline import Timeline
from loadgen.trace.tree import PrefixTree

Floats = npt.NDArray[np.float64]


class _Fenwick:
    """Sums of weights by time of last use."""

    __slots__ = ("_sums", "size")

    def __init__(self, size: int) -> None:
        self.size = size
        self._sums = [0] * (size + 1)

    def add(self, place: int, weight: int) -> None:
        place += 1
        sums = self._sums
        while place <= self.size:
            sums[place] += weight
            place += place & -place

    def up_to(self, place: int) -> int:
        """Sum of the weights at places 0 … place."""
        place += 1
        total = 0
        sums = self._sums
        while place > 0:
            total += sums[place]
            place &= place - 1
        return total


class Curve:
    """Shared runs by stack distance, and what their reuse waited for.

    `begin` and `width`: tokens a cache needs before a run starts to hit, and of the run. `wait_s`: since its last use.
    `prompt_tokens`: all prompt tokens. `footprint`: distinct tokens, prompts and answers: what a cache that forgets
    nothing would hold.
    """

    def __init__(
        self,
        begin: Floats,
        width: Floats,
        wait_s: Floats,
        prompt_tokens: int,
        footprint: int,
        block_accesses: int,
    ) -> None:
        self.begin, self.width, self.wait_s = begin, width, wait_s
        self.prompt_tokens, self.footprint, self.block_accesses = prompt_tokens, footprint, block_accesses
        # hits(C) = sum over runs of clip(C - begin, 0, width) = sum of (C - begin)+ - (C - end)+, by prefix sums
        self._begins, self._ends = np.sort(begin), np.sort(begin + width)
        self._begin_sums = np.concatenate(([0.0], np.cumsum(self._begins)))
        self._end_sums = np.concatenate(([0.0], np.cumsum(self._ends)))

    def hit_share(self, sizes: Sequence[float]) -> Floats:
        """Share of all prompt tokens that an LRU cache of each size, in tokens, would have held."""
        wanted = np.minimum(np.asarray(sizes, dtype=np.float64), self._ends[-1] if len(self._ends) else 0.0)
        after_begin = np.searchsorted(self._begins, wanted, side="right")
        after_end = np.searchsorted(self._ends, wanted, side="right")
        hits = (after_begin * wanted - self._begin_sums[after_begin]) - (
            after_end * wanted - self._end_sums[after_end]
        )
        return np.asarray(hits / max(self.prompt_tokens, 1))

    def size_for(self, share_of_ideal: float) -> float:
        """The smallest cache, in tokens, that reaches this share of what an endless one would hit."""
        low, high = 0.0, float(self._ends[-1]) if len(self._ends) else 0.0
        target = share_of_ideal * float(self.hit_share([high])[0])
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (low, middle) if float(self.hit_share([middle])[0]) >= target else (middle, high)
        return high

    def within(self, limits_s: Sequence[float]) -> Floats:
        """Share of the shared tokens that were used again within each number of seconds."""
        total = max(float(self.width.sum()), 1.0)
        order = np.argsort(self.wait_s)
        sums = np.concatenate(([0.0], np.cumsum(self.width[order])))
        return np.asarray(
            sums[np.searchsorted(self.wait_s[order], np.asarray(limits_s), side="right")] / total
        )


def curve(tree: PrefixTree, timeline: Timeline, *, answers: bool = True) -> Curve:
    """Stack distances of all prompts in the order of the timeline. `answers`: generated tokens take room, too.

    Memory: about 100 bytes a turn and 60 a shared run.
    """
    stack = _Stack(tree, len(timeline), answers)
    ids = [session.id for session in tree.trace.sessions]
    for start, end, number, place in timeline.in_order():
        stack.use(tree.node(ids[number], place), start, end)
    return stack.curve()


class _Stack:
    """The LRU stack as runs: by owner, `[end, time step]` pairs, the deepest first; time steps rise towards the root."""

    def __init__(self, tree: PrefixTree, turns: int, answers: bool) -> None:
        self._tree = tree
        self._extent = tree.whole if answers else tree.length
        self._weights = _Fenwick(turns)
        self._total = 0  # tokens in the stack
        self._runs: dict[int, list[tuple[int, int]]] = {}
        self._ended = array("d")  # by time step
        self._begin, self._width, self._wait = array("d"), array("d"), array("d")
        self._prompt_tokens = self._accesses = 0

    def use(self, node: int, start: float, end: float) -> None:
        """A request at `start` looks its prompt up; when it ends, prompt and answer are the newest in the stack."""
        tree, unit, now = self._tree, self._tree.unit, len(self._ended)
        self._accesses += tree.length[node]
        self._prompt_tokens += tree.length[node] * unit + tree.tail[node]
        moved: list[tuple[int, int]] = []  # (time step, tokens) that leave their place in the stack
        used, newer, nearer = -1, 0, 0
        fresh = 0
        for owner, first, stop in reversed(list(tree.segments(node))):
            runs = self._runs.setdefault(owner, [])
            at = first
            while runs and at < stop:
                upto, step = runs[-1]
                piece = (min(upto, stop) - at) * unit
                if step != used:
                    used, nearer = step, 0
                    newer = self._total - self._weights.up_to(step)
                    moved.append((step, 0))
                self._begin.append(newer + nearer)
                self._width.append(piece)
                self._wait.append(max(0.0, start - self._ended[step]))
                nearer += piece
                moved[-1] = (step, nearer)
                at = min(upto, stop)
                if upto > stop:
                    break
                runs.pop()
            fresh += (stop - at) * unit if at < stop else 0
            runs.append((stop, now))
        own = self._runs.setdefault(node, [])
        held = max(tree.length[node], own[0][0] if own else 0)  # a fork of the answer may have come first
        answer = max(0, self._extent[node] - held) * unit
        if answer:
            own.insert(0, (self._extent[node], now))
        for step, tokens in moved:
            self._weights.add(step, -tokens)
        self._weights.add(now, sum(tokens for _, tokens in moved) + fresh + answer)
        self._total += fresh + answer
        self._ended.append(end)

    def curve(self) -> Curve:
        arrays = (
            np.frombuffer(found, dtype=np.float64) if found else np.empty(0)
            for found in (self._begin, self._width, self._wait)
        )
        begin, width, wait = arrays
        return Curve(begin, width, wait, self._prompt_tokens, self._total, self._accesses)
