"""Whole sessions drawn from a trace, with replacement: the synthesizer that invents nothing.

A drawn session brings its sub-agents. Sharing within a family stays; blocks that came from another family are
fresh in each copy, as if another user had come with another repository.
"""

from __future__ import annotations

import random
from pathlib import Path

import msgspec

from loadgen.errors import InputError
from loadgen.outfile import refuse_input
from loadgen.trace.model import Blob, Blocks, Header, Message, Session, Source, Turn
from loadgen.trace.reader import TraceFile
from loadgen.trace.writer import TraceWriter


def resample(
    trace: TraceFile, out: Path, *, sessions: int, seed: int = 0, rate_per_s: float | None = None
) -> Path:
    """Write `sessions` families drawn from `trace` to `out`.

    With `rate_per_s` starts are a Poisson process, else all 0. In a trace of messages each copy's first user message
    gets a line of its own in front, so that copies of one session share what a common system prompt gives and no
    more. Same arguments, same file. Raises InputError when there is nothing to draw from.
    """
    refuse_input(out, trace.files())
    roots = [session for session in trace.sessions if session.parent is None and trace.turn_count(session.id)]
    if not roots or sessions < 1:
        raise InputError(f"{trace.path}: {len(roots)} sessions with turns to draw {sessions} from")
    rng = random.Random(seed)
    children: dict[str, list[Session]] = {}
    family: dict[str, str] = {}
    for session in trace.sessions:
        if session.parent is not None:
            children.setdefault(session.parent.session, []).append(session)
            family[session.id] = session.parent.session
    for name in list(family):
        while family[name] in family:
            family[name] = family[family[name]]
    old = trace.header
    header = Header(
        version=1,
        name=f"{old.name or trace.path.stem} resampled",
        source=Source(
            format=old.source.format if old.source else "unknown",
            tool="loadgen trace synth",
            licence=old.source.licence if old.source else None,
        ),
        fidelity=old.fidelity,
        tokenizer=old.tokenizer,
        block_size=old.block_size,
        made={"resampled": trace.sha256, "sessions": sessions, "seed": seed, "rate_per_s": rate_per_s},
    )
    with TraceWriter(out, header) as writer:
        _blobs(trace, writer)
        at = 0.0
        for number in range(sessions):
            root = rng.choice(roots)
            if rate_per_s is not None:
                at += rng.expovariate(rate_per_s)
            queue = [root]
            while queue:
                session = queue.pop(0)
                _copy(trace, writer, session, number, family, max(0.0, at + session.start_s - root.start_s))
                queue.extend(children.get(session.id, ()))
    return out


def _blobs(trace: TraceFile, writer: TraceWriter) -> None:
    for ref in trace.blob_refs():
        blob: Blob = trace.blob(ref)
        if blob.file is None:
            writer.json_blob(blob.json)
        else:
            writer.file_blob(trace.blob_path(ref), blob.sha256)


def _copy(
    trace: TraceFile, writer: TraceWriter, session: Session, number: int, family: dict[str, str], start: float
) -> None:
    name = f"{number:05d}/{session.id}"
    parent = session.parent
    if parent is not None:
        parent = msgspec.structs.replace(parent, session=f"{number:05d}/{parent.session}")
    writer.session(msgspec.structs.replace(session, id=name, parent=parent, start_s=start))
    for turn in trace.turns(session.id):
        copied = msgspec.structs.replace(turn, session=name)
        if turn.blocks is not None:
            copied.blocks = _blocks(turn, number, family)
        elif turn.index == 0 and turn.append:
            copied.append = _marked(turn.append, number)
        writer.turn(copied)
    writer.end(name)


def _blocks(turn: Turn, number: int, family: dict[str, str]) -> Blocks:
    assert turn.blocks is not None
    blocks = turn.blocks
    if blocks.from_ is None:
        return blocks
    source, index = blocks.from_
    if family.get(source, source) == family.get(turn.session, turn.session):
        return msgspec.structs.replace(blocks, from_=(f"{number:05d}/{source}", index))
    return Blocks(reuse=0, new=blocks.reuse + blocks.new, tail_tokens=blocks.tail_tokens)


def _marked(messages: list[Message], number: int) -> list[Message]:
    for place, message in enumerate(messages):
        if message["role"] == "user" and isinstance(message.get("content"), str):
            marked = {**message, "content": f"[{number:05d}]\n{message['content']}"}
            return [*messages[:place], marked, *messages[place + 1 :]]
    return messages
