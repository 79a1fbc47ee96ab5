"""Text for later turns, of exact token counts, that a session has not seen before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from loadgen.corpus.context import MANIFEST, load_set
from loadgen.corpus.exact import Filler, Piece
from loadgen.corpus.library import Library, open_source
from loadgen.corpus.recipe import Recipe, resolve
from loadgen.errors import InputError
from loadgen.tokens.base import Tokenizer

SOURCE = "source.json"
"""Beside the manifest: the recipe with its source, so that material for later turns comes from the same commit."""


class Material:
    """Hands out new text turn by turn.

    For one session, call `text` in the order of its turns: each call takes up where the last one ended, so nothing
    repeats within a session, and the same calls give the same text on any machine.
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
        self._filler = Filler(tokenizer)
        self._library = Library(open_source(recipe), recipe, tokenizer)
        self._streams: dict[int, Iterator[Piece]] = {}

    def text(self, session: int, turn: int, tokens: int) -> str:
        """Text of exactly `tokens` tokens for `turn` of `session`; begins and ends with a non-space character."""
        if session not in self._streams:
            self._streams[session] = self._pieces(session)
        filled = self._filler.fill(self._streams[session], tokens)
        if filled is None:
            raise InputError(
                f"the corpus has no {tokens:,} tokens left for turn {turn} of session {session} that the session has not seen; "
                "use fewer turns, fewer new tokens or a larger repository"
            )
        return filled.text

    def _pieces(self, session: int) -> Iterator[Piece]:
        seen = self._seen[session % len(self._seen)] if self._seen else frozenset()
        order = self._library.ordered("later", self._seed, session)
        return self._library.pieces(entry for entry in order if entry.path not in seen)


def _recipe_of(folder: Path) -> Recipe:
    try:
        return msgspec.json.decode((folder / SOURCE).read_bytes(), type=Recipe)
    except (OSError, msgspec.DecodeError):
        raise InputError(
            f"{folder} does not say what it was built from ({SOURCE}); build the contexts again"
        ) from None
