"""Writes contexts and their records as they are finished."""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from pathlib import Path

import msgspec

from loadgen.corpus.agent import recipe_hash
from loadgen.corpus.composed import Composed, Conversation, Shared
from loadgen.corpus.context import Context
from loadgen.corpus.recipe import Recipe
from loadgen.corpus.source import Source
from loadgen.tokens.base import Tokenizer

Progress = Callable[[int, int], None]
"""(contexts done, contexts in all)"""


class ContextWriter:
    """Writes contexts as they are done, in any order and from any thread."""

    def __init__(
        self,
        folder: Path,
        suffix: str,
        source: Source,
        recipe: Recipe,
        tokenizer: Tokenizer,
        n: int,
        progress: Progress | None,
    ) -> None:
        self.fronts: list[list[int]] = [[]] * n
        self.rendered: list[list[int]] = [[]] * n
        self.sample = Conversation("", [], [])
        self._made: dict[int, Context] = {}
        self._folder = folder
        self._suffix = suffix
        self._progress = progress
        self._n = n
        self._lock = threading.Lock()
        self._common = Context(
            id="",
            file="",
            tokens=0,
            sha256="",
            bytes=0,
            tokenizer=tokenizer.name,
            tokenizer_fingerprint=tokenizer.fingerprint,
            corpus=source.url,
            commit=source.commit,
            recipe_hash=recipe_hash(recipe),
        )

    @property
    def contexts(self) -> list[Context]:
        return [self._made[index] for index in range(self._n)]

    def done(self, index: int, composed: Composed, shared: Shared | None) -> None:
        name = f"context-{index:04d}"
        (self._folder / (name + self._suffix)).write_bytes(composed.data)
        context = msgspec.structs.replace(
            self._common,
            id=name,
            file=name + self._suffix,
            tokens=composed.tokens,
            sha256=hashlib.sha256(composed.data).hexdigest(),
            bytes=len(composed.data),
            files=[*(shared.files if shared else ()), *composed.files],
            group=shared.group if shared else None,
        )
        self.fronts[index] = composed.front
        self.rendered[index] = list(composed.rendered)
        if index == 0:
            self.sample = composed.conversation
        with self._lock:
            self._made[index] = context
            if self._progress is not None:
                self._progress(len(self._made), self._n)

    def finish(self, extra: dict[str, object]) -> list[Context]:
        """Write each context's record and return them all."""
        contexts = self.contexts
        for context in contexts:
            context.extra = extra
            write_json(self._folder / f"{context.id}.json", context)
        return contexts


def write_json(path: Path, value: object) -> None:
    """Write `value` as indented JSON."""
    path.write_bytes(msgspec.json.format(msgspec.json.encode(value), indent=1))
