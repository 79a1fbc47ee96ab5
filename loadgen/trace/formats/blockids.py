"""Prompts as lists of block ids, for formats that repeat them in full: the inverse of `blocktree`."""

from __future__ import annotations

from loadgen.errors import InputError
from loadgen.trace.tree import PrefixTree


class BlockIds:
    """Ids of blocks of `size` tokens, numbered from 1 in order of first appearance.

    A block is named by its last unit, which stands for all before it. A trace whose own blocks do not divide
    `size` is refused. `forget` starts a new numbering: ids of different scopes mean nothing to each other.
    """

    def __init__(self, tree: PrefixTree, size: int) -> None:
        if size % tree.unit:
            raise InputError(
                f"{tree.trace.path} has blocks of {tree.unit} tokens, which do not divide blocks of {size}"
            )
        self._tree = tree
        self._ratio = size // tree.unit
        self._ids: dict[tuple[int, int], int] = {}

    def forget(self) -> None:
        self._ids.clear()

    def _id(self, owner: int, place: int) -> int:
        return self._ids.setdefault((owner, place), len(self._ids) + 1)

    def full(self, node: int) -> list[int]:
        """Ids of the prompt's whole blocks."""
        ratio = self._ratio
        ids: list[int] = []
        for owner, begin, end in reversed(list(self._tree.segments(node))):
            first = -(-(begin + 1) // ratio) * ratio - 1  # the first last-unit of a block at or after `begin`
            ids.extend(self._id(owner, place) for place in range(first, end, ratio))
        return ids

    def partial(self, node: int) -> int | None:
        """Id of the last block that is not full; null where the prompt ends with a whole one."""
        tree = self._tree
        left = tree.length[node] % self._ratio
        if not left and not tree.tail[node]:
            return None
        if tree.tail[node] and not tree.same_tail[node]:
            return self._id(node, -1)
        if tree.tail[node]:
            source = tree.tail_source(node)
            return self._id(source, -1)
        owner, _, end = next(tree.segments(node))
        return self._id(owner, -2 - end)
