"""Writes contexts as they are finished, and their records when all are."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import msgspec

from loadgen.corpus.agent import recipe_hash
from loadgen.corpus.composed import Composed, Conversation, Shared
from loadgen.corpus.context import Context
from loadgen.corpus.recipe import Recipe
from loadgen.corpus.source import Source
from loadgen.tokens.base import Tokenizer

Progress = Callable[[int, int], None]
"""(contexts done, contexts in all)"""


class Written(NamedTuple):
    """One context that lies in the folder. `front` and `rendered` as in `Composed`; `sample` is given for the first one."""

    record: Context
    front: list[int]
    rendered: list[int]
    sample: Conversation | None


class ContextWriter:
    """Writes contexts as they are done, in any order and from any thread or process; the one who asked keeps count."""

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

    def write(self, index: int, composed: Composed, shared: Shared | None) -> Written:
        """Write the file of context `index`. Changes nothing here."""
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
        # Only an endpoint's way of counting needs the sample.
        sample = composed.conversation if index == 0 and composed.rendered else None
        return Written(context, composed.front, list(composed.rendered), sample)

    def keep(self, index: int, written: Written) -> None:
        """Take note of a context that `write` has written, here or in another process."""
        self.fronts[index] = written.front
        self.rendered[index] = written.rendered
        if written.sample is not None:
            self.sample = written.sample
        self._made[index] = written.record
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
