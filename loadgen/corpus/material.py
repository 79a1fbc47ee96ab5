"""Text for later turns, of exact token counts, that a session has not seen before."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path

import msgspec

from loadgen.corpus import later
from loadgen.corpus.context import MANIFEST, load_set
from loadgen.corpus.exact import Filler, Piece
from loadgen.corpus.library import Library, open_source
from loadgen.corpus.recipe import Later, Recipe, resolve
from loadgen.corpus.source import History
from loadgen.errors import InputError
from loadgen.tokens.base import Tokenizer

SOURCE = "source.json"
"""Beside the manifest: the recipe with its source, so that material for later turns comes from the same commit."""

HISTORY = 300
"""Commits whose changes may be shown."""


class Material:
    """Hands out new text turn by turn: tool results of the kinds and in the shares that the recipe's `later` says.

    For one session, call `text` in the order of its turns: each call takes up where the last one ended, so nothing
    repeats within a session, and the same calls give the same text on any machine. What a corpus does not have (a
    folder has no commits) is replaced by the other kinds.
    """

    def __init__(self, origin: Recipe | Path | str, tokenizer: Tokenizer, seed: int = 0) -> None:
        """`origin`: a recipe, what `resolve` takes, or a folder of contexts, whose files are then not shown again."""
        self._seen: list[frozenset[str]] = []
        if isinstance(origin, Recipe):
            recipe = origin
        elif (Path(origin) / MANIFEST).is_file():
            recipe = _recipe_of(Path(origin))
            self._seen = [frozenset(context.files) for context in load_set(Path(origin)).contexts]
        else:
            recipe = resolve(str(origin))
        self._seed = seed
        self._later = recipe.later
        self._filler = Filler(tokenizer)
        source = open_source(recipe, history=HISTORY if recipe.later.diff else 0)
        self._library = Library(source, recipe, tokenizer)
        self._history = source if isinstance(source, History) else None
        self._commits = self._history.commits(HISTORY) if self._history and recipe.later.diff else []
        self._streams: dict[int, _Stream] = {}

    def text(self, session: int, turn: int, tokens: int) -> str:
        """Text of exactly `tokens` tokens for `turn` of `session`; begins and ends with a non-space character."""
        if session not in self._streams:
            self._streams[session] = _Stream(self._kinds(session), self._seed, session)
        stream = self._streams[session]
        filled = self._filler.fill(stream, tokens)
        if filled is None:
            raise InputError(
                f"the corpus has no {tokens:,} tokens left for turn {turn} of session {session} that the session has not seen; "
                "use fewer turns, fewer new tokens or a larger repository"
            )
        stream.give_back(filled.unused)
        return filled.text

    def _kinds(self, session: int) -> list[tuple[int, Iterator[Piece]]]:
        """(share, pieces) of each kind that the recipe wants."""
        seen = self._seen[session % len(self._seen)] if self._seen else frozenset()
        order = [
            entry for entry in self._library.ordered("later", self._seed, session) if entry.path not in seen
        ]
        shares: Later = self._later
        kinds = [
            (shares.read, later.reads(self._library, order)),
            (shares.grep, later.searches(self._library, list(reversed(order)))),
            (shares.test, later.tests(self._library, order)),
        ]
        if self._history is not None:
            mine = sorted(self._commits, key=lambda commit: _hash(self._seed, session, commit))
            kinds.append((shares.diff, later.diffs(self._library, mine, self._history.change)))
        return [(share, pieces) for share, pieces in kinds if share]


class _Stream(Iterator[Piece]):
    """One session's pieces: the kind of each is drawn by hash, in proportion to the shares of kinds that have more."""

    def __init__(self, kinds: list[tuple[int, Iterator[Piece]]], seed: int, session: int) -> None:
        self._kinds = kinds
        self._key = (seed, session)
        self._number = 0
        self._returned: list[Piece] = []

    def give_back(self, pieces: list[Piece]) -> None:
        """Make `pieces` the next ones."""
        self._returned = [*pieces, *self._returned]

    def __next__(self) -> Piece:
        if self._returned:
            return self._returned.pop(0)
        while self._kinds:
            total = sum(share for share, _ in self._kinds)
            draw = _hash(*self._key, self._number) % total
            self._number += 1
            for place, (share, pieces) in enumerate(self._kinds):
                if draw < share:
                    piece = next(pieces, None)
                    if piece is not None:
                        return piece
                    del self._kinds[place]
                    break
                draw -= share
        raise StopIteration


def _hash(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=8).digest())


def _recipe_of(folder: Path) -> Recipe:
    try:
        return msgspec.json.decode((folder / SOURCE).read_bytes(), type=Recipe)
    except (OSError, msgspec.DecodeError):
        raise InputError(
            f"{folder} does not say what it was built from ({SOURCE}); build the contexts again"
        ) from None
