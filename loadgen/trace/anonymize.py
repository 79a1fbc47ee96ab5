"""A trace without content: lengths, prefix structure and timing alone.

Prompts become `blocks`, which name earlier turns and counts, not hashes: no dictionary of known texts can be tried on
them. Ids become keyed digests under a key that is drawn for each export and thrown away. What was free text (names,
groups, agent kinds, stop reasons that nobody knows) is dropped or reduced to a fixed set.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable
from pathlib import Path

from loadgen.outfile import refuse_input
from loadgen.trace.model import Blocks, Header, Parent, Session, Source, Turn
from loadgen.trace.reader import TraceFile
from loadgen.trace.tree import PrefixTree
from loadgen.trace.writer import TraceWriter

_STOPS = frozenset(
    ("stop", "length", "tool_calls", "tool-calls", "tool_use", "end_turn", "max_tokens", "stop_sequence", "content_filter", "aborted", "error", "refusal")
)  # fmt: skip
Alias = Callable[[str], str]
_DEFAULT_OUTPUT = 4  # characters a token, where a source counted no answer's tokens


def anonymize(trace: TraceFile, out: Path, *, block_size: int = 1, key: bytes | None = None) -> Path:
    """Write a content-free copy of `trace` to `out`.

    `block_size` of prompts that come from messages: 1 keeps sharing to the token; a larger one rounds it down, as a
    cache would. Traces that have blocks keep theirs. `key` makes ids repeatable, for tests; leave it null.
    """
    refuse_input(out, trace.files())
    salt = key or secrets.token_bytes(32)
    names: dict[str, str] = {}

    def alias(name: str) -> str:
        if name not in names:
            names[name] = hashlib.blake2b(name.encode(), key=salt, digest_size=8).hexdigest()
        return names[name]

    header = trace.header
    lengths = header.fidelity == "lengths"
    size = header.block_size if header.fidelity == "blocks" else block_size
    made = Header(
        version=1,
        source=Source(
            format=header.source.format if header.source is not None else "unknown",
            tool="loadgen trace anonymize",
        ),
        fidelity="lengths" if lengths else "blocks",
        block_size=None if lengths else size,
        made={"anonymized": True},
    )
    tree = PrefixTree(trace, alone=True)
    where: list[tuple[str, int]] = [("", 0)] * len(tree.depth)
    for session in trace.sessions:
        for place, turn in enumerate(trace.turns(session.id)):
            where[tree.node(session.id, place)] = (session.id, turn.index)
    with TraceWriter(out, made) as writer:
        for session in trace.sessions:
            writer.session(_session(session, alias))
            for place, turn in enumerate(trace.turns(session.id)):
                node = tree.node(session.id, place)
                blocks = None if lengths else _blocks(tree, node, turn, where, size or 1, alias)
                writer.turn(_turn(turn, alias(session.id), blocks, tree, node))
            writer.end(alias(session.id))
    return out


def _session(session: Session, alias: Alias) -> Session:
    parent = session.parent
    return Session(
        id=alias(session.id),
        parent=None
        if parent is None
        else Parent(session=alias(parent.session), turn=parent.turn, wait=parent.wait),
        group=None if session.group is None else alias(session.group),
        start_s=session.start_s,
        agent="main" if session.agent == "main" else "sub",
    )


def _blocks(
    tree: PrefixTree, node: int, turn: Turn, where: list[tuple[str, int]], size: int, alias: Alias
) -> Blocks:
    tokens = tree.length[node] * tree.unit + tree.tail[node]
    shared = tree.depth[node] * tree.unit // size
    parent = tree.parent[node] if not tree.same_tail[node] else tree.tail_source(node)
    source: tuple[str, int] | None = None
    if parent >= 0 and (shared or tree.same_tail[node]):
        name, index = where[parent]
        if (name, index) != (turn.session, turn.index - 1):
            source = (alias(name), index)
    elif turn.index == 0 or parent < 0:
        shared = 0
    whole = tokens // size
    return Blocks(
        from_=source,
        reuse=shared,
        new=whole - shared,
        tail_tokens=tokens % size,
        same_tail=bool(tree.same_tail[node]),
    )


def _turn(turn: Turn, session: str, blocks: Blocks | None, tree: PrefixTree, node: int) -> Turn:
    output = turn.output_tokens
    if output is None and turn.answer is not None:
        content = turn.answer.get("content")
        calls = "".join(call["function"]["arguments"] for call in turn.answer.get("tool_calls", ()))
        output = -(-(len(content if isinstance(content, str) else "") + len(calls)) // _DEFAULT_OUTPUT)
    return Turn(
        session=session,
        index=turn.index,
        attempt=turn.attempt,
        blocks=blocks,
        gap=turn.gap,
        input_tokens=turn.input_tokens if blocks is None else tree.length[node] * tree.unit + tree.tail[node],
        output_tokens=output,
        reasoning_tokens=None
        if output is None or turn.reasoning_tokens is None
        else min(turn.reasoning_tokens, output),
        cached_tokens=turn.cached_tokens if turn.input_tokens is not None else None,
        stop=turn.stop if turn.stop in _STOPS or turn.stop is None else "other",
        seen=turn.seen,
    )
