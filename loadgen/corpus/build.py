"""Recipe to folder of contexts: exact, distinct, proven, and there all at once or not at all."""

from __future__ import annotations

import hashlib
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from loadgen import tokens as tokenizers
from loadgen.corpus import cache, cores, layout
from loadgen.corpus.agent import agent, recipe_hash
from loadgen.corpus.composed import Composer
from loadgen.corpus.context import MANIFEST, Context, ContextSet, load_set
from loadgen.corpus.document import DocumentComposer
from loadgen.corpus.exact import Filler
from loadgen.corpus.library import Library, open_source
from loadgen.corpus.material import SOURCE
from loadgen.corpus.messages import MessagesComposer
from loadgen.corpus.outcome import ACCOUNT, Outcome, outcome, read_outcome
from loadgen.corpus.prefix import prove
from loadgen.corpus.recipe import Origin, Recipe, is_url
from loadgen.corpus.source import Source
from loadgen.corpus.staging import building, refuse_foreign, staged
from loadgen.corpus.template import EndpointRendering
from loadgen.corpus.workers import InTurn, Threads, Workers
from loadgen.corpus.writer import ContextWriter, Progress, write_json
from loadgen.errors import InputError, shortage
from loadgen.paths import cache_dir
from loadgen.tokens.base import Tokenizer

_WORTH_A_FORK = 300_000  # tokens in all; fewer are done sooner by threads
_FRONT = 512  # tokens of each context that are kept for the proof, beyond what contexts share


class Built(NamedTuple):
    """What was built, and what the user should know about it."""

    folder: Path
    contexts: ContextSet
    outcome: Outcome


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
    out: Path | None,
    tokenizer: Tokenizer,
    progress: Progress | None = None,
    processes: int | None = None,
    endpoint: EndpointRendering | None = None,
    cached: bool = False,
) -> Built:
    """Build `n` contexts of exactly `tokens` tokens into the folder `out`.

    With an `endpoint`, `tokens` is the whole prompt as it counts it (`usage.prompt_tokens`), its template included;
    each context's record still says what the text alone counts.

    `processes` is how many cores work (default: all that this process may use); the bytes do not depend on it. They are
    processes where that pays and does no harm, else threads. `out` appears by rename when everything is proven; an earlier set of contexts
    there is replaced, anything else is refused. With `cached`, what was built before is taken from the user's cache
    and what is built is kept there; then `out` may be None.
    """
    if n < 1 or tokens < 64:
        raise InputError("a corpus needs at least one context, and a context at least 64 tokens")
    if processes is not None and processes < 1:
        raise InputError("--processes: at least one core has to work")
    if out is not None:
        refuse_foreign(out, is_ours)
    source = open_source(recipe)

    def make(target: Path) -> ContextSet:
        library = Library(source, recipe, tokenizer, framed=recipe.prompt.form == "document")
        if endpoint is not None:
            endpoint.require_agreement(_sample(library))
        with staged(target) as folder:
            return _build_into(folder, library, recipe, n, tokens, tokenizer, progress, processes, endpoint)

    try:
        if cached:
            at = endpoint.fingerprint if endpoint else None
            place = (source.url, source.identity, recipe_hash(recipe), recipe.later)
            name = cache.key(*place, n, tokens, tokenizer.fingerprint, tokenizer.name, at)
            folder = cache.find(name)
            if folder is None:
                with building(cache_dir("contexts")) as temporary:
                    made = temporary / "contexts"
                    folder = cache.keep(name, made, make(made).content_hash)
            if out is not None:
                cache.hand_out(folder, out)
            folder = out or folder
        elif out is None:
            raise InputError("without the cache, contexts need a folder: name one with -o")
        else:
            make(out)
            folder = out
        return Built(folder, load_set(folder), read_outcome(folder))
    except OSError as error:
        if words := shortage(error):
            raise InputError(f"the contexts were not built: {words}") from None
        raise InputError(
            f"the contexts cannot be written to {out or cache_dir('contexts')}: {error.strerror or error}"
        ) from None
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
) -> ContextSet:
    prompt = recipe.prompt
    shared_tokens = prompt.shared_tokens if prompt.layout in ("shared-prefix", "tenants") else 0
    filler = Filler(tokenizer, front=shared_tokens + _FRONT)
    composer = _composer(recipe, library, filler, tokens, endpoint)
    writer = ContextWriter(folder, composer.suffix, library.source, recipe, tokenizer, n, progress)
    local = endpoint is None and tokenizers.is_local(tokenizer)
    workers = _workers(min(processes or cores.available(), n), n * tokens, library, local=local)
    used = layout.build(layout.Job(library, composer, filler, prompt, n, tokens, workers, writer))
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
    write_json(folder / ACCOUNT, outcome(library, found, used, prompt.layout))
    return found


def _workers(count: int, tokens: int, library: Library, *, local: bool) -> Workers:
    """Who builds. `tokens` in all; `local`: no connection is used, which processes could not share."""
    if count == 1:
        return InTurn()
    if local and tokens >= _WORTH_A_FORK:
        from loadgen.corpus.forked import Forked, may_fork

        if may_fork():
            return Forked(count, library)
    return Threads(count)


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
    return make(filler, parts, seed=prompt.seed, tokens=tokens, rendering=endpoint)


def _sample(library: Library) -> str:
    """Some files, for comparing two tokenizers."""
    return "".join(piece.text for piece in islice(library.pieces(library.ordered("sample")), 8))


def is_ours(name: str) -> bool:
    """Whether a file of this name can be part of a set of contexts."""
    return name in (MANIFEST, SOURCE, ACCOUNT) or (
        name.startswith("context-") and name.endswith((".txt", ".json"))
    )


def _content_hash(contexts: list[Context]) -> str:
    """SHA-256 (hex) over tokenizer and texts: equal means equal bytes and equal counts."""
    digest = hashlib.sha256()
    for context in contexts:
        digest.update(f"{context.tokenizer_fingerprint} {context.tokens} {context.sha256}\n".encode())
    return digest.hexdigest()


def _pinned(recipe: Recipe, source: Source) -> Recipe:
    """The recipe as it was built: with the commit instead of a branch, without credentials, wherever it is read from."""
    url = recipe.source.url
    if is_url(url):
        url = source.url
    elif url != "stdlib":
        url = str(Path(url).expanduser().resolve())
    return msgspec.structs.replace(recipe, source=Origin(url=url, rev=source.commit))
