"""Layouts: which files each of n contexts is made of, and what contexts share.

None of it depends on how many threads or processes work: files are dealt by the hash of their paths, and whatever needs the
outcome of another context is done in the order of the contexts.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain, islice
from typing import NamedTuple

from loadgen.corpus.composed import Composer, Shared
from loadgen.corpus.exact import Filler
from loadgen.corpus.library import Library
from loadgen.corpus.recipe import Prompt
from loadgen.corpus.source import Entry
from loadgen.corpus.workers import Workers
from loadgen.corpus.writer import ContextWriter, Written
from loadgen.errors import InputError

# No text has fewer bytes a token on average; used to refuse at once what cannot be done.
_LEAST_BYTES_A_TOKEN = 1.5
# Hardly any text has more; used to try at once what very likely can be done.
_MOST_BYTES_A_TOKEN = 6


class ShortError(InputError):
    """The corpus has too little text for the layout."""


class Job(NamedTuple):
    """One build: what all layouts need."""

    library: Library
    composer: Composer
    filler: Filler
    prompt: Prompt
    n: int
    tokens: int
    workers: Workers
    writer: ContextWriter


def build(job: Job) -> str:
    """Build all contexts by the recipe's layout; returns the layout that was used where the recipe says `auto`."""
    shares = shared_parts(job)
    taken = {path for share in shares if share is not None for path in share.files}
    layout = job.prompt.layout
    if layout == "distinct" or (layout != "rotated" and _promising(job, shares)):
        try:
            _distinct(job, shares, taken)
        except ShortError:
            if layout == "distinct":
                raise
        else:
            return "distinct" if layout == "auto" else layout
    _rotated(job, shares, taken)
    return "rotated" if layout == "auto" else layout


def _promising(job: Job, shares: Sequence[Shared | None]) -> bool:
    """Whether distinct contexts are worth trying, by what some files count: trying for nothing costs a whole build."""
    needed = sum(job.tokens - (share.tokens if share else 0) for share in shares)
    if job.library.shown_bytes() > _MOST_BYTES_A_TOKEN * needed:
        return True
    some = list(islice(job.library.pieces(job.library.ordered("estimate", job.prompt.seed)), 24))
    counted = sum(job.filler.tokenizer.count(piece.text) for piece in some)
    a_byte = counted / max(1, sum(len(piece.text.encode()) for piece in some))
    return job.library.shown_bytes() * a_byte > 0.8 * needed


def shared_parts(job: Job) -> list[Shared | None]:
    """What each context begins with: nothing, the same for all, or its tenant's."""
    prompt = job.prompt
    if prompt.layout not in ("shared-prefix", "tenants"):
        return [None] * job.n
    groups = prompt.tenants if prompt.layout == "tenants" else 1
    if prompt.shared_tokens + 64 > job.tokens:
        raise InputError(
            f"contexts of {job.tokens:,} tokens cannot share {prompt.shared_tokens:,} and have something of their own; "
            "lower prompt.shared_tokens or ask for more tokens"
        )
    parts: list[Shared] = []
    order = job.library.ordered("share", prompt.seed)
    for group in range(groups):
        name = f"tenant-{group}" if prompt.layout == "tenants" else "shared"
        part = job.composer.share(name, prompt.shared_tokens, job.library.pieces(order))
        if part is None:
            raise _short(job, f"to share {prompt.shared_tokens:,} tokens")
        parts.append(part)
        used = set(part.files)
        order = [entry for entry in order if entry.path not in used]
    return [parts[index % groups] for index in range(job.n)]


def _distinct(job: Job, shares: Sequence[Shared | None], taken: set[str]) -> None:
    """Every file stands in at most one context.

    Files are dealt one by one in hash order; a context that its hand does not fill is completed from files that the
    others did not need.
    """
    own = [job.tokens - (share.tokens if share else 0) for share in shares]
    if job.library.shown_bytes() < sum(own) * _LEAST_BYTES_A_TOKEN:
        raise _short(job, f"for {job.n} distinct contexts of {job.tokens:,} tokens")
    order = [entry for entry in job.library.ordered("deal", job.prompt.seed) if entry.path not in taken]
    hands = [order[index :: job.n] for index in range(job.n)]

    def one(index: int, files: Iterable[Entry]) -> Written | None:
        composed = job.composer.compose(index, shares[index], job.library.pieces(files))
        return None if composed is None else job.writer.write(index, composed, shares[index])

    used: dict[int, set[str]] = {}

    def done(index: int, written: Written | None) -> None:
        if written is not None:
            job.writer.keep(index, written)
            used[index] = set(written.record.files)

    job.workers.map(lambda index: one(index, hands[index]), job.n, done)
    missing = [index for index in range(job.n) if index not in used]
    if not missing:
        return
    spare = [entry for index in sorted(used) for entry in hands[index] if entry.path not in used[index]]
    for index in missing:
        written = one(index, chain(hands[index], spare))
        if written is None:
            raise _short(job, f"for {job.n} distinct contexts of {job.tokens:,} tokens")
        done(index, written)
        spare = [entry for entry in spare if entry.path not in used[index]]


def _rotated(job: Job, shares: Sequence[Shared | None], taken: set[str]) -> None:
    """All contexts are made of the same files, each in another order.

    The files are as many as `prompt.pool_tokens` tokens take; with more than a context holds, each has a part of them.
    """
    pool: list[Entry] = []
    total = 0
    wanted = max(job.prompt.pool_tokens, job.tokens)
    for entry in job.library.ordered("deal", job.prompt.seed):
        if entry.path in taken:
            continue
        for piece in job.library.pieces([entry]):
            total += job.filler.tokenizer.count(piece.text)
            pool.append(entry)
        if total >= wanted:
            break
    else:
        if total + sum(share.tokens for share in shares[:1] if share) < job.tokens or job.prompt.pool_tokens:
            raise ShortError(
                f"{job.library.source.url} holds {total:,} tokens of text that an agent would read, fewer than "
                f"{'the pool' if job.prompt.pool_tokens else 'one context'} of {wanted:,}; ask for fewer or name a larger repository"
            )

    def one(index: int) -> Written:
        order = job.library.ordered("rotate", job.prompt.seed, index, of=pool)
        composed = job.composer.compose(index, shares[index], job.library.pieces(order))
        if composed is None:
            raise _short(job, f"for a context of {job.tokens:,} tokens")
        return job.writer.write(index, composed, shares[index])

    job.workers.map(one, job.n, job.writer.keep)


def _short(job: Job, purpose: str) -> ShortError:
    return ShortError(
        f"{job.library.source.url} has too little text {purpose} "
        f"(at most {job.library.shown_bytes():,} bytes that an agent would read); ask for fewer contexts or tokens, "
        "name a larger repository, or let contexts hold the same files in another order with --layout rotated"
    )
