"""Layouts: which text each of n contexts is made of."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from itertools import chain

from loadgen.corpus.exact import Filled, Filler, Piece
from loadgen.corpus.library import Library
from loadgen.corpus.source import Entry
from loadgen.errors import InputError

Done = Callable[[int, Filled], None]
"""Called once for each context, from any thread, in any order."""

# No text has fewer bytes a token on average; used to refuse at once what cannot be done.
_LEAST_BYTES_A_TOKEN = 1.5


class ShortError(InputError):
    """The corpus has too little text for the layout."""


def opening(seed: int, index: int, name: str) -> Piece:
    """The first line of a context: differs from every other context's in its first characters."""
    digest = hashlib.sha256(f"{seed}\0{index}".encode()).hexdigest()[:12]
    return Piece("", f"{digest} is the id of this session. Files of {name} follow.\n")


def distinct(
    library: Library, filler: Filler, *, n: int, tokens: int, seed: int, name: str, pool: Executor, done: Done
) -> None:
    """Every file stands in at most one context.

    Files are dealt round by round in hash order; a context that its share does not fill is completed, in order of the
    contexts, from files that the others did not need. Neither depends on how many threads work.
    """
    if library.shown_bytes() < n * tokens * _LEAST_BYTES_A_TOKEN:
        raise _short(library, n, tokens)
    order = library.ordered("deal", seed)
    shares = [order[index::n] for index in range(n)]

    def one(index: int) -> set[str] | None:
        filled = filler.fill(chain([opening(seed, index, name)], library.pieces(shares[index])), tokens)
        if filled is None:
            return None
        done(index, filled)
        return set(filled.used)

    used = list(pool.map(one, range(n)))
    missing = [index for index in range(n) if used[index] is None]
    if not missing:
        return
    spare = [
        entry
        for entry, owner in zip(order, (used[place % n] for place in range(len(order))), strict=True)
        if owner is not None and entry.path not in owner
    ]
    for index in missing:
        filled = filler.fill(
            chain([opening(seed, index, name)], library.pieces(chain(shares[index], spare))), tokens
        )
        if filled is None:
            raise _short(library, n, tokens)
        done(index, filled)
        taken = set(filled.used)
        spare = [entry for entry in spare if entry.path not in taken]


def rotated(
    library: Library, filler: Filler, *, n: int, tokens: int, seed: int, name: str, pool: Executor, done: Done
) -> None:
    """All contexts hold the same files, each in another order."""
    material: list[Entry] = []
    total = 0
    for entry in library.ordered("deal", seed):
        for piece in library.pieces([entry]):
            total += filler.count(piece.text)
            material.append(entry)
        if total >= tokens:
            break
    else:
        raise ShortError(
            f"{library.source.url} holds {total:,} tokens of text that an agent would read, fewer than one context of {tokens:,}; "
            "ask for fewer tokens or name a larger repository"
        )
    paths = {entry.path for entry in material}

    def order(index: int) -> Iterator[Piece]:
        mine = (entry for entry in library.ordered("rotate", seed, index) if entry.path in paths)
        return chain([opening(seed, index, name)], library.pieces(mine))

    def one(index: int) -> None:
        filled = filler.fill(order(index), tokens)
        if filled is None:
            raise InputError(
                f"context {index}: {filler.name} counts the same files differently in another order"
            )
        done(index, filled)

    list(pool.map(one, range(n)))


def _short(library: Library, n: int, tokens: int) -> ShortError:
    return ShortError(
        f"{library.source.url} has too little text for {n} distinct contexts of {tokens:,} tokens "
        f"(at most {library.shown_bytes():,} bytes that an agent would read); ask for fewer contexts or tokens, name a larger repository, "
        "or let contexts hold the same files in another order with --layout rotated"
    )
