"""All prompts of a trace as one prefix tree in units of blocks (a unit is one token where messages are known).

A node is a turn: what its prompt adds to an earlier turn's, and its answer. `segments` tells a prompt as runs of
units, each with the node that owns them. From `blocks` the tree is exact; from messages it is cut by digests and
weighed by tokens (see `loadgen.trace.reuse`).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from loadgen.errors import InputError
from loadgen.trace.model import Turn
from loadgen.trace.reader import TraceFile
from loadgen.trace.reuse import Reuse, reuse


class PrefixTree:
    """Nodes by number, in arrays; a session's are consecutive.

    `unit`: tokens of a unit. A node owns the units from `depth` (what it shares) to `length` (its prompt) and on to
    `whole` (prompt and answer); `tail`: prompt tokens beyond its last whole unit. `same_tail`: they, too, are an
    earlier turn's. Memory: 41 bytes a turn. Raises InputError for a trace of lengths, unless `alone` says that
    its prompts may be taken to share nothing.
    """

    def __init__(self, trace: TraceFile, *, alone: bool = False) -> None:
        if trace.header.fidelity == "lengths" and not alone:
            raise InputError(f"{trace.path}: a trace of lengths knows no prefixes; no reuse can be told")
        self.trace = trace
        self.blocks = trace.header.fidelity == "blocks"
        self.unit = (trace.header.block_size or 1) if self.blocks else 1
        self.parent, self.depth = array("q"), array("Q")
        self.length, self.whole, self.tail = array("Q"), array("Q"), array("Q")
        self.same_tail = array("b")
        self._base: dict[str, int] = {}  # a session's first node
        self._by_index: dict[str, array[int]] = {}  # node of each turn index (the last attempt's)
        sources: list[tuple[str, int] | None] = []
        for use in reuse(trace):
            self._base.setdefault(use.session.id, len(self.depth))
            sources.append(self._add(use))
        for node, source in enumerate(sources):
            self.parent.append(-1 if source is None else self._by_index[source[0]][source[1]])
            assert self.parent[node] != node
        self._tails = {n: self.parent[n] for n in range(len(sources)) if self.same_tail[n]}
        self._shorten()

    def tail_source(self, node: int) -> int:
        """The node whose tail this node's is, through all that repeat it."""
        while node in self._tails and self._tails[node] >= 0:
            node = self._tails[node]
        return node

    def node(self, session: str, place: int) -> int:
        """Node of the `place`-th record of a session."""
        return self._base[session] + place

    def shared_tokens(self, node: int) -> int:
        """Tokens of the prompt that an earlier prompt held."""
        return self.depth[node] * self.unit + (self.tail[node] if self.same_tail[node] else 0)

    def segments(self, node: int) -> Iterator[tuple[int, int, int]]:
        """(owner, begin, end) of the prompt's runs of units, from its end to its root."""
        end = self.length[node]
        while end > 0:
            begin = self.depth[node]
            if begin < end:
                yield node, begin, end
                end = begin
            node = self.parent[node]

    def _add(self, use: Reuse) -> tuple[str, int] | None:
        turn = use.turn
        source: tuple[str, int] | None
        if self.blocks:
            source, shared, length, tail = self._from_blocks(turn)
        else:
            tokens = use.tokens or 0
            source, shared, length, tail = use.source, min(use.shared or 0, tokens), tokens, 0
            if source is not None:
                shared = min(shared, self.whole[self._by_index[source[0]][source[1]]])
        self.depth.append(0 if source is None else shared)
        self.length.append(length)
        self.whole.append((length * self.unit + tail + (turn.output_tokens or 0)) // self.unit)
        self.tail.append(tail)
        self.same_tail.append(turn.blocks is not None and turn.blocks.same_tail)
        nodes = self._by_index.setdefault(turn.session, array("Q"))
        node = len(self.depth) - 1
        if len(nodes) == turn.index:
            nodes.append(node)
        else:
            nodes[turn.index] = node
        return source if shared or self.same_tail[node] else None

    def _from_blocks(self, turn: Turn) -> tuple[tuple[str, int] | None, int, int, int]:
        blocks = turn.blocks
        if blocks is None:  # a retry of the same prompt
            first = self._by_index[turn.session][turn.index]
            return (turn.session, turn.index), self.length[first], self.length[first], self.tail[first]
        source = blocks.from_ or ((turn.session, turn.index - 1) if turn.index else None)
        return source, blocks.reuse, blocks.reuse + blocks.new, blocks.tail_tokens

    def _shorten(self) -> None:
        """Hang each node under the one that owns the last unit it shares, so that walks are short."""
        parent, depth = self.parent, self.depth
        for node in range(len(parent)):
            above = parent[node]
            while above >= 0 and depth[node] <= depth[above]:
                above = parent[above]
            parent[node] = above
