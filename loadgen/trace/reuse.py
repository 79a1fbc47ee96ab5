"""Ideal reuse: the tokens of each prompt that earlier prompts already held, for a cache that forgets nothing.

For `blocks` the file says it exactly; for messages it is exact where the shared part ends where an earlier
prompt ended (tokens known), and otherwise shared out by characters. `lengths` traces know nothing of prefixes.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import orjson

from loadgen.trace.model import Session, Turn
from loadgen.trace.prefix import PrefixIndex
from loadgen.trace.reader import TraceFile

CHARACTERS_PER_TOKEN = 4
"""Only to weigh prompts against each other where a source recorded no token counts; `Reuse.measured` says so."""


@dataclass(frozen=True, slots=True)
class Reuse:
    """A turn with `tokens` in its prompt, `shared` of them held by earlier prompts (null: unknowable).

    `measured` is false when tokens were estimated from characters. `source`: the turn that first held the shared
    messages; null for `blocks`, where the turn itself names it.
    """

    session: Session
    turn: Turn
    tokens: int | None
    shared: int | None
    measured: bool
    source: tuple[str, int] | None = None


def in_time_order(trace: TraceFile) -> list[Session]:
    """Sessions by start, a child after its parent; the order in which prompts are first seen."""
    return sorted(trace.sessions, key=lambda session: session.start_s)


def reuse(trace: TraceFile) -> Iterator[Reuse]:
    """Every turn of the trace, whole sessions in order of their start.

    Sharing between sessions that overlap is credited to the one that started first; the sum over all turns
    does not depend on that.
    """
    fidelity = trace.header.fidelity
    if fidelity == "blocks":
        yield from _blocks(trace)
    elif fidelity == "lengths":
        for session in in_time_order(trace):
            for turn in trace.turns(session.id):
                yield Reuse(session, turn, turn.input_tokens, None, True)
    else:
        yield from _messages(trace)


def _blocks(trace: TraceFile) -> Iterator[Reuse]:
    """A block's source is an earlier turn, so its prompt part was sent; what lies in an answer was not."""
    size = trace.header.block_size
    assert size is not None
    for session in in_time_order(trace):
        previous: Turn | None = None
        for turn in trace.turns(session.id):
            if turn.blocks is None:  # a retry of the same prompt
                tokens = previous.input_tokens if previous else None
                yield Reuse(session, turn, tokens, tokens, True)
                continue
            blocks = turn.blocks
            tokens = (blocks.reuse + blocks.new) * size + blocks.tail_tokens
            shared = blocks.reuse * size + (blocks.tail_tokens if blocks.same_tail else 0)
            yield Reuse(session, turn, tokens, shared, True)
            previous = turn


def _messages(trace: TraceFile) -> Iterator[Reuse]:
    index = PrefixIndex(blob_size=_blob_sizes(trace))
    ends: dict[bytes, int] = {}  # tokens up to the end of a prompt
    for session in in_time_order(trace):
        for turn in trace.turns(session.id):
            prefix = index.add(session, turn)
            prompt = index.prompt(session.id)
            size = prompt.sizes[-1] if prompt.sizes else prompt.head_size
            known = turn.input_tokens if turn.input_tokens is not None else turn.content_tokens
            tokens = -(-size // CHARACTERS_PER_TOKEN) if known is None else known
            shared = 0
            if prefix.source is not None:
                end = prompt.chain[prefix.shared - 1] if prefix.shared else prompt.head
                shared_size = prompt.sizes[prefix.shared - 1] if prefix.shared else prompt.head_size
                exact = ends.get(end)
                shared = min(tokens, round(tokens * shared_size / max(size, 1)) if exact is None else exact)
            if known is not None and prompt.chain:
                ends.setdefault(prompt.chain[-1], known)
            yield Reuse(session, turn, tokens, shared, known is not None, prefix.source)
        index.forget(session.id)


def _blob_sizes(trace: TraceFile) -> Callable[[str], int]:
    @functools.cache
    def size(ref: str) -> int:
        blob = trace.blob(ref)
        return trace.blob_path(ref).stat().st_size if blob.file is not None else len(orjson.dumps(blob.json))

    return size
