"""The "broken prefix" scenario: a trace whose every prompt begins with a nonce of its own.

This is what a server sees from a client that puts something new before everything else in each request: no prefix is
ever reused, whatever the cache holds. Each prompt becomes its turn's whole `append`, system prompt included; texts
that were blobs stay blobs, so the file grows by references.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from loadgen.errors import InputError
from loadgen.record.nonce import inject
from loadgen.trace.model import Message, Session, Turn
from loadgen.trace.reader import TraceFile, open_trace
from loadgen.trace.writer import TraceWriter

_LONG_TEXT = 2048  # characters; a longer one becomes a blob here too
_NONCE_DIGITS = 5


def break_prefix(source: Path, target: Path) -> int:
    """Write `source` to `target` with a nonce before each prompt; the number of turns. The nonces depend on session and
    turn alone. Raises InputError for a trace without messages and for a `target` that exists."""
    if target.exists():
        raise InputError(f"{target} exists; choose another name")
    with open_trace(source) as trace:
        if trace.header.fidelity not in ("bodies", "messages"):
            raise InputError(
                f"{source} holds {trace.header.fidelity}, no messages: its prefixes cannot be broken"
            )
        with TraceWriter(target, trace.header) as writer:
            return sum(_session(trace, session, writer) for session in trace.sessions)


def _session(trace: TraceFile, session: Session, writer: TraceWriter) -> int:
    system = trace.blob(session.system).json if session.system else None
    tools = writer.json_blob(trace.blob(session.tools).json) if session.tools else None
    writer.session(msgspec.structs.replace(session, system=None, tools=tools))
    prompt: list[Message] = []
    before: list[Message] = []
    count = 0
    for turn in trace.turns(session.id):
        changed: Turn = msgspec.structs.replace(turn)
        if turn.append is not None:
            if turn.index > 0 or turn.attempt > 1:
                prompt = before[: turn.keep]
            prompt = prompt + [_copied(trace, writer, message) for message in turn.append]
            first: Message = {"role": "system", "content": inject(system, _nonce(session.id, turn.index))}
            changed.keep, changed.append = 0, [_blobbed(writer, first), *prompt]
        if turn.answer is not None:
            changed.answer = _copied(trace, writer, turn.answer)
        writer.turn(changed)
        count += 1
        before = prompt if changed.answer is None else [*prompt, changed.answer]
    writer.end(session.id)
    return count


def _nonce(session: str, turn: int) -> str:
    return hashlib.sha256(f"{session}/{turn}".encode()).hexdigest()[:_NONCE_DIGITS]


def _copied(trace: TraceFile, writer: TraceWriter, message: Message) -> Message:
    content = message.get("content")
    if not isinstance(content, dict):
        return message
    blob = trace.blob(content["blob"])
    if blob.file is not None:
        ref = writer.file_blob(trace.blob_path(content["blob"]), blob.sha256)
    else:
        ref = writer.json_blob(blob.json)
    return message | {"content": {"blob": ref}}


def _blobbed(writer: TraceWriter, message: Message) -> Message:
    content = message["content"]
    return (
        message | {"content": {"blob": writer.json_blob(content)}} if len(content) >= _LONG_TEXT else message
    )
