"""From what the user named (a trace, a folder of contexts, a corpus) to a trace file that can be played."""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path

import msgspec

from loadgen import paths, tokens
from loadgen.corpus import build, material, recipe
from loadgen.corpus.context import MANIFEST, load_set
from loadgen.corpus.staging import building
from loadgen.corpus.trace import from_conversations, in_message_form
from loadgen.errors import InputError
from loadgen.paths import cache_dir
from loadgen.replay.options import Options
from loadgen.tokens.base import Tokenizer
from loadgen.trace import synth

DEFAULT_SESSIONS, DEFAULT_TURNS, DEFAULT_OUTPUT = 10, 5, 128


def trace_path(options: Options, tokenizer: Tokenizer | None, *, quiet: bool = True) -> Path:
    """The trace to play. Contexts are built, and a sweep trace is made of them, where no trace is named; both are kept in
    the user's cache under the hash of what they were made from."""
    if options.trace:
        path = Path(options.trace)
        if path.is_file():
            return path
        try:
            return paths.find(options.trace)
        except InputError:
            raise InputError(f"there is no trace {path}, neither here nor among the shipped ones") from None
    folder = Path(options.contexts) if options.contexts else _built(options, tokenizer)
    return _trace_of(folder, options, tokenizer)


def _built(options: Options, tokenizer: Tokenizer | None) -> Path:
    """Contexts of the options' corpus, in the cache."""
    used = tokenizer or tokens.get(options.tokenizer or "tekken")
    source = recipe.resolve(options.corpus, options.rev)
    root = cache_dir("contexts")
    with building(root) as temporary:
        out = temporary / "contexts"
        found = build.build(
            source,
            n=options.sessions or DEFAULT_SESSIONS,
            tokens=options.context_tokens,
            out=out,
            tokenizer=used,
        )
        final = root / found.content_hash[:32]
        if not (final / MANIFEST).is_file():
            shutil.rmtree(final, ignore_errors=True)
            os.replace(out, final)
    return final


def _trace_of(folder: Path, options: Options, tokenizer: Tokenizer | None) -> Path:
    """A sweep trace of a folder of contexts. It lies in the cache with the contexts linked beside it, since a trace's
    files must be inside its own folder."""
    contexts = load_set(folder)
    wanted = options.sessions or len(contexts.contexts)
    if wanted > len(contexts.contexts):
        raise InputError(f"{folder} holds {len(contexts.contexts)} contexts, fewer than --sessions {wanted}")
    turns = (options.turns or DEFAULT_TURNS) + options.first_turn
    output = options.output_tokens or DEFAULT_OUTPUT
    identity = msgspec.json.encode(
        (2, contexts.content_hash, wanted, turns, options.new_tokens, output, options.seed)
    )
    place = cache_dir("workloads") / hashlib.sha256(identity).hexdigest()[:32]
    trace = place / "trace.jsonl"
    if trace.is_file():
        return trace
    linked = place / "contexts"
    linked.mkdir(parents=True, exist_ok=True)
    for name in [
        MANIFEST,
        *(n for c in contexts.contexts for n in (c.file, str(Path(c.file).with_suffix(".json")))),
    ]:
        _link(folder / name, linked / name)
    used = tokenizer if tokenizer and tokenizer.name == contexts.tokenizer else tokens.get(contexts.tokenizer)
    text = material.Material(folder, used, options.seed).text
    make = from_conversations if in_message_form(folder) else synth.from_contexts
    return make(
        linked,
        trace,
        sessions=wanted,
        turns=turns,
        new_tokens=options.new_tokens,
        output_tokens=output,
        new_text=text,
        seed=options.seed,
    )


def _link(source: Path, target: Path) -> None:
    if target.exists():
        return
    try:
        os.link(source, target)
    except OSError:  # another file system, or one without links
        shutil.copyfile(source, target)
