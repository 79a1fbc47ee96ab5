"""Synthesize a trace from a folder of contexts: the sweep that fills a KV cache and comes back to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import msgspec

from loadgen.errors import InputError
from loadgen.outfile import refuse_input
from loadgen.trace.model import Header, Message, Session, Source, Turn
from loadgen.trace.writer import TraceWriter

NewText = Callable[[int, int, int], str]
"""(session, turn, tokens) -> text of exactly that many tokens, never repeated within a session."""


class Counter(Protocol):
    """The part of a tokenizer that checks a text's length."""

    @property
    def name(self) -> str: ...
    def count(self, text: str) -> int: ...


class _Context(msgspec.Struct):
    id: str
    file: str
    tokens: int
    sha256: str


class _Manifest(msgspec.Struct):
    """What a trace needs of a context folder's manifest.json."""

    tokenizer: str
    contexts: list[_Context]


def from_contexts(
    folder: str | Path,
    out: str | Path,
    *,
    sessions: int | None,
    turns: int,
    new_tokens: int,
    output_tokens: int,
    new_text: NewText,
    seed: int = 0,
    tokenizer: Counter | None = None,
) -> Path:
    """Session k is context k as its first user message; each later turn appends `new_tokens` of new text.

    Recorded answers have `output_tokens` tokens. User messages take the texts of even turn numbers and answers
    those of odd ones, so that no text comes twice. `content_tokens` is exact, `input_tokens` stays null: no chat
    template is known here. With `tokenizer`, every text's length is checked. `seed` is what `new_text` was made
    with; it is kept in the header. Returns `out`.

    Raises InputError when the folder holds too few contexts, when `out` is not in or above the folder, or when a
    number makes no sense.
    """
    folder, out = Path(folder), Path(out)
    manifest = _manifest(folder)
    refuse_input(out, [folder / "manifest.json", *(folder / c.file for c in manifest.contexts)])
    wanted = len(manifest.contexts) if sessions is None else sessions
    if not 1 <= wanted <= len(manifest.contexts):
        raise InputError(
            f"{folder} holds {len(manifest.contexts)} contexts; {wanted} sessions cannot be made of them"
        )
    for name, value, least in (
        ("turns", turns, 1),
        ("new tokens", new_tokens, 1),
        ("output tokens", output_tokens, 1),
    ):
        if value < least:
            raise InputError(f"{name} must be at least {least}, not {value}")
    header = Header(
        version=1,
        name=folder.resolve().name,
        source=Source(format="loadgen-contexts", tool="loadgen trace synth"),
        fidelity="messages",
        tokenizer=manifest.tokenizer,
        made={
            "sessions": wanted,
            "turns": turns,
            "new_tokens": new_tokens,
            "output_tokens": output_tokens,
            "seed": seed,
        },
    )

    def text(session: int, number: int, tokens: int) -> str:
        made = new_text(session, number, tokens)
        if tokenizer is not None and (found := tokenizer.count(made)) != tokens:
            raise InputError(f"a text of {tokens} tokens was asked for and has {found} by {tokenizer.name}")
        return made

    with TraceWriter(out, header) as writer:
        for k, context in enumerate(manifest.contexts[:wanted]):
            first: Message = {
                "role": "user",
                "content": {"blob": writer.file_blob(folder / context.file, context.sha256)},
            }
            session = f"s{k:04d}"
            writer.session(Session(id=session))
            content_tokens = context.tokens
            for index in range(turns):
                if index:
                    content_tokens += output_tokens + new_tokens
                message = first if index == 0 else {"role": "user", "content": text(k, 2 * index, new_tokens)}
                writer.turn(
                    Turn(
                        session=session,
                        index=index,
                        append=[message],
                        answer={"role": "assistant", "content": text(k, 2 * index + 1, output_tokens)},
                        content_tokens=content_tokens,
                        output_tokens=output_tokens,
                        stop="length",
                    )
                )
            writer.end(session)
    return out


def _manifest(folder: Path) -> _Manifest:
    path = folder / "manifest.json"
    try:
        return msgspec.json.decode(path.read_bytes(), type=_Manifest)
    except OSError:
        raise InputError(
            f"{folder} holds no manifest.json; build contexts with `loadgen corpus build … -o {folder}`"
        ) from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path} cannot be read ({error}); build the contexts again") from None
