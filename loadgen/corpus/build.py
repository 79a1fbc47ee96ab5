"""Recipe to folder of contexts: exact, distinct, proven, and there all at once or not at all."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from loadgen.corpus import layout
from loadgen.corpus.agent import agent
from loadgen.corpus.composed import Composer
from loadgen.corpus.context import MANIFEST, Context, ContextSet
from loadgen.corpus.document import DocumentComposer
from loadgen.corpus.exact import Filler
from loadgen.corpus.library import Library, open_source
from loadgen.corpus.material import SOURCE
from loadgen.corpus.messages import MessagesComposer
from loadgen.corpus.prefix import prove
from loadgen.corpus.recipe import Origin, Recipe
from loadgen.corpus.rules import Account
from loadgen.corpus.source import Source
from loadgen.corpus.staging import refuse_foreign, staged
from loadgen.corpus.template import EndpointRendering
from loadgen.corpus.writer import ContextWriter, Progress, write_json
from loadgen.errors import InputError
from loadgen.tokens.base import Tokenizer

_FRONT = 512  # tokens of each context that are kept for the proof, beyond what contexts share


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
    endpoint: EndpointRendering | None = None,
) -> Built:
    """Build `n` contexts of exactly `tokens` tokens into the folder `out`.

    With an `endpoint`, `tokens` is the whole prompt as it counts it (`usage.prompt_tokens`), its template included;
    each context's record still says what the text alone counts.
    `processes` is how many cores work (default: all); the bytes do not depend on it. They are threads: the tokenizer
    releases the interpreter's lock. `out` appears by rename when everything is proven; an earlier set of contexts
    there is replaced, anything else is refused.
    """
    if n < 1 or tokens < 64:
        raise InputError("a corpus needs at least one context, and a context at least 64 tokens")
    refuse_foreign(out, is_ours)
    source = open_source(recipe)
    try:
        library = Library(source, recipe, tokenizer, framed=recipe.prompt.form == "document")
        if endpoint is not None:
            endpoint.require_agreement(_sample(library))
        with staged(out) as folder:
            return _build_into(folder, library, recipe, n, tokens, tokenizer, progress, processes, endpoint)
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
    endpoint: EndpointRendering | None,
) -> Built:
    prompt = recipe.prompt
    shared_tokens = prompt.shared_tokens if prompt.layout in ("shared-prefix", "tenants") else 0
    filler = Filler(tokenizer, front=shared_tokens + _FRONT)
    composer = _composer(recipe, library, filler, tokens, endpoint)
    writer = ContextWriter(folder, composer.suffix, library.source, recipe, tokenizer, n, progress)
    with ThreadPoolExecutor(processes or os.cpu_count() or 1) as pool:
        used = layout.build(layout.Job(library, composer, filler, prompt, n, tokens, pool, writer.done))
    groups = [context.group for context in writer.contexts]
    proof = prove(writer.fronts, groups, shared_tokens)
    extra: dict[str, object] = {
        "layout": used,
        "form": prompt.form,
        "seed": prompt.seed,
        "shared_tokens": shared_tokens,
    }
    if endpoint is not None:
        extra["endpoint"] = _prove_rendered(endpoint, writer, groups, shared_tokens, tokens)
    contexts = writer.finish(extra)
    found = ContextSet(
        content_hash=_content_hash(contexts),
        tokens=tokens,
        tokenizer=tokenizer.name,
        tokenizer_fingerprint=tokenizer.fingerprint,
        max_common_prefix=max(proof),
        contexts=contexts,
    )
    write_json(folder / SOURCE, _pinned(recipe, library.source))
    write_json(folder / MANIFEST, found)
    return _outcome(library, found, used, prompt.layout)


def _prove_rendered(
    endpoint: EndpointRendering,
    writer: ContextWriter,
    groups: list[str | None],
    shared_tokens: int,
    tokens: int,
) -> dict[str, object]:
    """The same proof over the prompts as the endpoint renders them; returns what the contexts' records say of it."""
    sample = writer.sample
    template = endpoint.own_prefix(sample)
    around = endpoint.overhead(sample)
    proof = prove(writer.rendered, groups, shared_tokens, template=template, around=around)
    return {
        "model": endpoint.endpoint.model,
        "api": endpoint.api,
        "template": endpoint.fingerprint,
        "template_prefix": template,
        "prompt_tokens": tokens,
        "max_common_prefix": max(proof),
    }


def _composer(
    recipe: Recipe, library: Library, filler: Filler, tokens: int, endpoint: EndpointRendering | None
) -> Composer:
    prompt = recipe.prompt
    parts = agent(recipe, [entry.path for entry in library.entries])
    make = MessagesComposer if prompt.form == "messages" else DocumentComposer
    return make(filler, parts, name=recipe.name, seed=prompt.seed, tokens=tokens, rendering=endpoint)


def _sample(library: Library) -> str:
    """Some files, for comparing two tokenizers."""
    return "".join(piece.text for piece in islice(library.pieces(library.ordered("sample")), 8))


def is_ours(name: str) -> bool:
    """Whether a file of this name can be part of a set of contexts."""
    return name in (MANIFEST, SOURCE) or (name.startswith("context-") and name.endswith((".txt", ".json")))


def _content_hash(contexts: list[Context]) -> str:
    """SHA-256 (hex) over tokenizer and texts: equal means equal bytes and equal counts."""
    digest = hashlib.sha256()
    for context in contexts:
        digest.update(f"{context.tokenizer_fingerprint} {context.tokens} {context.sha256}\n".encode())
    return digest.hexdigest()


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
    remarks += [f"{note}: {files:,} files" for note, files in sorted(account.notes.items())]
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
