"""Recipe to folder of contexts: exact, distinct, proven, and there all at once or not at all."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import msgspec

from loadgen.corpus import layout
from loadgen.corpus.context import MANIFEST, Context, ContextSet
from loadgen.corpus.exact import Filled, Filler
from loadgen.corpus.library import Library, open_source
from loadgen.corpus.material import SOURCE
from loadgen.corpus.prefix import BLOCK, longest_common
from loadgen.corpus.recipe import Origin, Recipe
from loadgen.corpus.rules import Account
from loadgen.corpus.source import Source
from loadgen.corpus.staging import refuse_foreign, staged
from loadgen.errors import InputError
from loadgen.tokens.base import Tokenizer

Progress = Callable[[int, int], None]
"""(contexts done, contexts in all)"""


class Built(NamedTuple):
    """What was built, and what the user should know about it."""

    contexts: ContextSet
    layout: str
    account: Account
    remarks: list[str]
    files_used: int
    bytes_used: int
    files_spare: int


def build(
    recipe: Recipe,
    *,
    n: int,
    tokens: int,
    out: Path,
    tokenizer: Tokenizer,
    progress: Progress | None = None,
    processes: int | None = None,
) -> ContextSet:
    """`build_and_account` for callers that want the manifest only."""
    return build_and_account(
        recipe, n=n, tokens=tokens, out=out, tokenizer=tokenizer, progress=progress, processes=processes
    ).contexts


def build_and_account(
    recipe: Recipe,
    *,
    n: int,
    tokens: int,
    out: Path,
    tokenizer: Tokenizer,
    progress: Progress | None = None,
    processes: int | None = None,
) -> Built:
    """Build `n` contexts of exactly `tokens` tokens into the folder `out`.

    `processes` is how many cores work (default: all); the bytes do not depend on it. They are threads: the tokenizer
    releases the interpreter's lock. `out` appears by rename when everything is proven; an earlier set of contexts
    there is replaced, anything else is refused.
    """
    if n < 1 or tokens < 64:
        raise InputError("a corpus needs at least one context, and a context at least 64 tokens")
    refuse_foreign(out, _ours)
    source = open_source(recipe)
    try:
        library = Library(source, recipe, tokenizer)
        with staged(out) as folder:
            return _build_into(folder, library, recipe, n, tokens, tokenizer, progress, processes)
    except OSError as error:
        raise InputError(f"the contexts cannot be written to {out}: {error.strerror or error}") from None
    finally:
        source.close()


def _build_into(
    folder: Path,
    library: Library,
    recipe: Recipe,
    n: int,
    tokens: int,
    tokenizer: Tokenizer,
    progress: Progress | None,
    processes: int | None,
) -> Built:
    filler = Filler(tokenizer)
    contexts: list[Context | None] = [None] * n
    fronts: list[list[int]] = [[]] * n
    lock = threading.Lock()
    source = library.source

    def done(index: int, filled: Filled) -> None:
        data = filled.text.encode()
        file = f"context-{index:04d}.txt"
        (folder / file).write_bytes(data)
        contexts[index] = Context(
            id=f"context-{index:04d}",
            file=file,
            tokens=tokens,
            sha256=hashlib.sha256(data).hexdigest(),
            bytes=len(data),
            tokenizer=tokenizer.name,
            tokenizer_fingerprint=tokenizer.fingerprint,
            corpus=source.url,
            commit=source.commit,
            recipe_hash=recipe.hash,
            files=[path for path in filled.used if path],
        )
        fronts[index] = filled.front
        if progress is not None:
            with lock:
                progress(sum(context is not None for context in contexts), n)

    wanted = recipe.prompt.layout
    with ThreadPoolExecutor(processes or os.cpu_count() or 1) as pool:
        arguments = {
            "n": n,
            "tokens": tokens,
            "seed": recipe.prompt.seed,
            "name": recipe.name,
            "pool": pool,
            "done": done,
        }
        if wanted in ("auto", "distinct"):
            try:
                layout.distinct(library, filler, **arguments)  # type: ignore[arg-type]
                used = "distinct"
            except layout.ShortError:
                if wanted == "distinct":
                    raise
                contexts[:] = [None] * n
                layout.rotated(library, filler, **arguments)  # type: ignore[arg-type]
                used = "rotated"
        elif wanted == "rotated":
            layout.rotated(library, filler, **arguments)  # type: ignore[arg-type]
            used = "rotated"
        else:
            raise InputError(f"layout {wanted} is not built yet")
    complete = [context for context in contexts if context is not None]
    shared, i, j = longest_common(fronts)
    if shared >= BLOCK:
        raise InputError(
            f"contexts {i} and {j} share their first {shared} tokens, which is a KV block or more; use another seed"
        )
    for context in complete:
        context.extra = {"layout": used, "seed": recipe.prompt.seed}
        (folder / f"{context.id}.json").write_bytes(
            msgspec.json.format(msgspec.json.encode(context), indent=1)
        )
    found = ContextSet(
        content_hash=_content_hash(recipe, complete),
        tokens=tokens,
        tokenizer=tokenizer.name,
        tokenizer_fingerprint=tokenizer.fingerprint,
        max_common_prefix=shared,
        contexts=complete,
    )
    (folder / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    (folder / SOURCE).write_bytes(msgspec.json.format(msgspec.json.encode(_pinned(recipe, source)), indent=1))
    return _outcome(library, found, used, wanted)


def _pinned(recipe: Recipe, source: Source) -> Recipe:
    """The recipe as it was built: with the commit instead of a branch, without credentials."""
    url = recipe.source.url if recipe.source.url == "stdlib" else source.url
    return msgspec.structs.replace(recipe, source=Origin(url=url, rev=source.commit))


def _outcome(library: Library, found: ContextSet, used: str, wanted: str) -> Built:
    account = library.account
    paths = {path for context in found.contexts for path in context.files}
    remarks = []
    if wanted == "auto" and used == "rotated":
        remarks.append(
            "too little text for distinct contexts: all hold the same files, each in another order (layout rotated)"
        )
    for note, files in sorted(account.notes.items()):
        remarks.append(f"{note}: {files:,} files")
    if library.broken_specials:
        remarks.append(f"strings that are special tokens, broken by a space: {library.broken_specials:,}")
    return Built(
        contexts=found,
        layout=used,
        account=account,
        remarks=remarks,
        files_used=len(paths),
        bytes_used=sum(account.taken.get(path, 0) for path in paths),
        files_spare=sum(
            entry.path not in paths and entry.path not in account.left_out for entry in library.entries
        ),
    )


def _content_hash(recipe: Recipe, contexts: list[Context]) -> str:
    digest = hashlib.sha256(recipe.hash.encode())
    for context in contexts:
        digest.update(context.sha256.encode())
    return digest.hexdigest()


def _ours(name: str) -> bool:
    return name in (MANIFEST, SOURCE) or (name.startswith("context-") and name.endswith((".txt", ".json")))
