"""Token sequences as a tree: what shares a prefix with what.

A `Stream` is an append-only sequence of tokens that branches off its parent at `branch` tokens; a prompt is
a stream and a length. The cache needs nothing else, so the what-if builds streams straight from a trace,
and the HTTP endpoint finds them with an `Interner` that compares token ids.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import numpy.typing as npt

Tokens: TypeAlias = npt.NDArray[np.int32]


class Stream:
    """Tokens [branch, …) of its own behind the first `branch` tokens of `parent`.

    `cached` counts the stores and namespaces that hold something of it.
    """

    __slots__ = ("branch", "cached", "parent")

    def __init__(self, parent: Stream | None = None, branch: int = 0) -> None:
        self.parent = parent
        self.branch = branch
        self.cached = 0

    def segments(self, blocks: int, block: int) -> list[tuple[Stream, int, int]]:
        """The first `blocks` blocks of `block` tokens as (stream, first, end) in block numbers, root first.

        A block that straddles the branch differs from the parent's and belongs to the child.
        """
        parent = self.parent
        if parent is None:
            return [(self, 0, blocks)] if blocks else []
        found: list[tuple[Stream, int, int]] = []
        stream: Stream | None = self
        end = blocks
        while stream is not None and end > 0:
            first = stream.branch // block
            if first < end:
                found.append((stream, first, end))
                end = first
            stream = stream.parent
        found.reverse()
        return found


class TokenStream(Stream):
    """A stream whose token ids are known: `own` holds those behind the branch."""

    __slots__ = ("__weakref__", "children", "own")

    def __init__(self, parent: TokenStream | None, branch: int, own: Tokens) -> None:
        super().__init__(parent, branch)
        self.own = own
        self.children: dict[tuple[int, int], TokenStream] = {}  # by (position, token there)


class Interner:
    """Finds the stream of a token sequence, growing the tree by what is new. Not thread-safe."""

    def __init__(self) -> None:
        self._root = TokenStream(None, 0, np.empty(0, np.int32))

    def intern(self, tokens: Tokens) -> TokenStream:
        """The stream whose first len(tokens) tokens are `tokens`. Costs one vector comparison of its length."""
        stream, position, size = self._root, 0, len(tokens)
        while True:
            own = stream.own
            position += _common(own, tokens[position:])
            if position == size:
                return stream
            child = stream.children.get((position, int(tokens[position])))
            if child is not None:
                stream = child
                continue
            if stream is not self._root and position == stream.branch + len(own):
                stream.own = np.concatenate((own, tokens[position:]))
                return stream
            # Tokens up to the branch stay reachable through the parent, so the copy is only what is new.
            child = TokenStream(stream, position, tokens[position:].copy())
            stream.children[position, int(tokens[position])] = child
            return child

    def drop(self, stream: Stream) -> None:
        """Forget a stream that nothing holds any more, and what of its parents was kept for its sake alone."""
        while isinstance(stream, TokenStream) and not stream.cached and not stream.children:
            parent = stream.parent
            if not isinstance(parent, TokenStream):
                return  # the root
            key = (stream.branch, int(stream.own[0]))
            if parent.children.get(key) is stream:
                del parent.children[key]
            stream = parent


def _common(left: Tokens, right: Tokens) -> int:
    """Length of the common prefix."""
    size = min(len(left), len(right))
    differs = left[:size] != right[:size]
    first = int(differs.argmax()) if size else 0
    return first if size and differs[first] else size
