"""What happens between one turn and the next: growth, compactions, breaks; the material of summaries and fits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from loadgen.trace.model import Session
from loadgen.trace.reader import TraceFile
from loadgen.trace.tree import PrefixTree

SHRINK = 0.7
KEPT = 0.5
"""A compaction: the prompt falls below 0.7 of the one before and keeps less than half of it."""


@dataclass(slots=True)
class Step:
    """One turn. `prompt` tokens, `before`: those of the session's previous prompt, `kept`: how many of them lead this
    prompt, too, `new`: tokens no earlier prompt of the trace held. `kind`: first, extend, break, compaction."""

    index: int
    kind: str
    prompt: int
    before: int
    kept: int
    new: int
    output: int | None
    gap_kind: str | None
    gap_s: float | None
    e2e_s: float | None


@dataclass(slots=True)
class Conversation:
    """A session's steps, retries left out."""

    session: Session
    steps: list[Step] = field(default_factory=list)
    children: list[tuple[int, str]] = field(default_factory=list)  # (turn, session id) of its sub-agents


def conversations(trace: TraceFile) -> Iterator[Conversation]:
    """Every session of the trace in file order. Raises InputError for a trace of lengths."""
    tree = PrefixTree(trace)
    children: dict[str, list[tuple[int, str]]] = {}
    for session in trace.sessions:
        if session.parent is not None:
            children.setdefault(session.parent.session, []).append((session.parent.turn, session.id))
    for session in trace.sessions:
        found = Conversation(session, children=children.get(session.id, []))
        previous = -1
        for place, turn in enumerate(trace.turns(session.id)):
            if turn.attempt > 1:
                continue
            node = tree.node(session.id, place)
            prompt = tree.length[node] * tree.unit + tree.tail[node]
            before = 0 if previous < 0 else tree.length[previous] * tree.unit + tree.tail[previous]
            kept = 0 if previous < 0 else _common(tree, previous, node)
            found.steps.append(
                Step(
                    index=turn.index,
                    kind=_kind(previous, prompt, before, kept, tree.unit),
                    prompt=prompt,
                    before=before,
                    kept=kept,
                    new=prompt - tree.shared_tokens(node),
                    output=turn.output_tokens,
                    gap_kind=None if turn.gap is None else turn.gap.kind,
                    gap_s=None if turn.gap is None else turn.gap.s,
                    e2e_s=None if turn.seen is None else turn.seen.e2e_s,
                )
            )
            previous = node
        yield found


def _kind(previous: int, prompt: int, before: int, kept: int, unit: int) -> str:
    if previous < 0:
        return "first"
    if prompt < SHRINK * before and kept < KEPT * before:
        return "compaction"
    return "extend" if kept > before - 2 * unit else "break"


def _common(tree: PrefixTree, one: int, other: int) -> int:
    """Tokens of the common prefix of two prompts: where the path of `other` leaves that of `one`."""
    path = {owner: end for owner, _, end in tree.segments(one)}
    for owner, begin, end in tree.segments(other):
        if owner in path:
            return max(begin, min(end, path[owner])) * tree.unit
    return 0
