"""A sweep trace of contexts in message form: what `trace.synth` does for contexts that are one document.

System prompt and tools become the session's, and the first turn appends the task, the calls and their results. Long
results are blobs, once each, so that contexts that hold the same files (`rotated`) share them in the trace.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from loadgen.corpus import messages
from loadgen.corpus.composed import Conversation
from loadgen.corpus.context import load_set
from loadgen.errors import InputError
from loadgen.outfile import refuse_input
from loadgen.trace.model import Header, Session, Source, Turn
from loadgen.trace.writer import TraceWriter

_LONG = 1000  # characters from which on a content is a blob


def in_message_form(folder: Path) -> bool:
    """Whether the contexts in `folder` are conversations."""
    return load_set(folder).contexts[0].file.endswith(".messages.json")


def from_conversations(
    folder: Path,
    out: Path,
    *,
    sessions: int | None,
    turns: int,
    new_tokens: int,
    output_tokens: int,
    new_text: Callable[[int, int, int], str],
    seed: int = 0,
) -> Path:
    """Session k begins with context k; each later turn appends a user message of `new_tokens` tokens of new text.

    Takes what `trace.synth.from_contexts` takes and makes the same later turns: messages take the texts of even turn
    numbers and recorded answers, of `output_tokens` tokens, those of odd ones. Returns `out`. Raises InputError when the
    folder holds too few contexts or other ones.
    """
    found = load_set(folder)
    refuse_input(out, [folder / "manifest.json", *(folder / c.file for c in found.contexts)])
    wanted = len(found.contexts) if sessions is None else sessions
    if not 1 <= wanted <= len(found.contexts):
        raise InputError(
            f"{folder} holds {len(found.contexts)} contexts; {wanted} sessions cannot be made of them"
        )
    made = {
        "sessions": wanted,
        "turns": turns,
        "new_tokens": new_tokens,
        "output_tokens": output_tokens,
        "seed": seed,
    }
    if min(turns, new_tokens, output_tokens) < 1:
        raise InputError("turns, new tokens and output tokens must be at least 1")
    header = Header(
        version=1,
        name=folder.resolve().name,
        source=Source(format="loadgen-contexts", tool="loadgen corpus"),
        fidelity="messages",
        tokenizer=found.tokenizer,
        made=made,
    )
    with TraceWriter(out, header) as writer:
        for k, context in enumerate(found.contexts[:wanted]):
            conversation = messages.read((folder / context.file).read_bytes())
            session = f"s{k:04d}"
            writer.session(_session(writer, session, context.group, conversation))
            tokens = context.tokens
            append = [_stored(writer, message) for message in conversation.messages]
            for index in range(turns):
                if index:
                    tokens += output_tokens + new_tokens
                    append = [{"role": "user", "content": new_text(k, 2 * index, new_tokens)}]
                answer = {"role": "assistant", "content": new_text(k, 2 * index + 1, output_tokens)}
                writer.turn(
                    Turn(
                        session=session,
                        index=index,
                        append=append,
                        answer=answer,
                        content_tokens=tokens,
                        output_tokens=output_tokens,
                        stop="length",
                    )
                )
            writer.end(session)
    return out


def _session(writer: TraceWriter, name: str, group: str | None, conversation: Conversation) -> Session:
    return Session(
        id=name,
        group=group,
        system=writer.json_blob(conversation.system) if conversation.system else None,
        tools=writer.json_blob(conversation.tools) if conversation.tools else None,
    )


def _stored(writer: TraceWriter, message: dict[str, Any]) -> dict[str, Any]:
    if len(message["content"]) < _LONG:
        return message
    return {**message, "content": {"blob": writer.json_blob(message["content"])}}
