"""Trace format, version 1: the records of a trace file as typed structures (design, section 3).

A trace is JSON Lines; every line is one of these records, told apart by `type`. The prompt of turn k is
`P(k) = (P(k-1) + [answer(k-1)])[:keep] + append`, where system and tools are not counted and no `keep`
means all.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

VERSION = 1
Fidelity = Literal["bodies", "messages", "blocks", "lengths"]
GapKind = Literal["tool", "human"]

Count = Annotated[int, Meta(ge=0, le=2**53)]
Seconds = Annotated[float, Meta(ge=0)]
Hex256 = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Ref = Annotated[str, Meta(pattern="^sha256:[0-9a-f]{64}$")]
Name = Annotated[str, Meta(min_length=1, max_length=512)]

Message = dict[str, Any]
"""One OpenAI chat message. `content` is a string, null, a list of parts, or `{"blob": "sha256:…"}`: the text
of a blob record. A blob with `file` is a context on disk that is never copied into the trace."""


class Source(msgspec.Struct, omit_defaults=True, forbid_unknown_fields=False):
    format: str
    tool: str | None = None
    licence: str | None = None


class Header(msgspec.Struct, tag="trace", tag_field="type", omit_defaults=True, kw_only=True):
    version: int
    name: str = ""
    source: Source | None = None
    fidelity: Fidelity
    tokenizer: str | None = None
    block_size: Annotated[int, Meta(ge=1, le=2**20)] | None = None
    made: dict[str, Any] | None = (
        None  # how the file was made: arguments of the synthesizer, counts of the importer
    )


class Blob(msgspec.Struct, tag="blob", tag_field="type", omit_defaults=True, kw_only=True):
    """Content stored once. `json` holds a value and `sha256` is the digest of its compact JSON (orjson);
    `file` names a UTF-8 text file relative to the trace's folder and `sha256` is the digest of its bytes."""

    sha256: Hex256
    json: Any = None
    file: str | None = None


class Parent(msgspec.Struct, omit_defaults=True, kw_only=True):
    session: Name
    turn: Count
    call_id: str | None = None
    wait: bool = True


class Session(msgspec.Struct, tag="session", tag_field="type", omit_defaults=True, kw_only=True):
    id: Name
    parent: Parent | None = None
    group: str | None = None
    start_s: Seconds = 0.0
    agent: str = "main"
    system: Ref | None = None  # "sha256:…" of a blob whose json is the system prompt (string)
    tools: Ref | None = None  # "sha256:…" of a blob whose json is the list of tools


class Gap(msgspec.Struct, omit_defaults=True):
    """Time from the end of the previous turn (and of every awaited child) to the start of this one.

    Turn 0 has none, except a child's: there it runs from the end of the parent's turn."""

    kind: GapKind
    s: Seconds


class Blocks(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A prompt of a content-free trace: `reuse` blocks of an earlier turn (prompt, then answer), `new` fresh ones and a tail.

    `from` null is the session's previous turn. `same_tail`: the tail, too, is that of the `from` turn's prompt."""

    from_: tuple[Name, Count] | None = msgspec.field(name="from", default=None)
    reuse: Count
    new: Count
    tail_tokens: Count = 0
    same_tail: bool = False


class Seen(msgspec.Struct, omit_defaults=True):
    """What the source measured."""

    ttft_s: Seconds | None = None
    e2e_s: Seconds | None = None
    first_text_s: Seconds | None = None  # first text that a person sees; thinking and calls come before it
    added_s: Seconds | None = None  # of the time to the first token, what a recording proxy added


class Turn(msgspec.Struct, tag="turn", tag_field="type", omit_defaults=True, kw_only=True):
    """One request and its answer. Turns of a session stand in order of `index`; a retry (`attempt` > 1) whose
    `append` is null has the prompt of the index's first attempt. The answer of an index is its last attempt's.

    `content_tokens` counts system, tools and messages without any chat template, for a synthesized trace whose
    template is not known yet; there `input_tokens` is null."""

    session: Name
    index: Count
    attempt: Annotated[int, Meta(ge=1, le=10_000)] = 1
    keep: Count | None = None
    append: list[Message] | None = None
    blocks: Blocks | None = None
    answer: Message | None = None
    gap: Gap | None = None
    input_tokens: Count | None = None  # the whole prompt, template included
    content_tokens: Count | None = None  # the prompt without template
    output_tokens: Count | None = None
    reasoning_tokens: Count | None = None  # part of output_tokens
    cached_tokens: Count | None = None  # part of input_tokens
    stop: str | None = None
    seen: Seen | None = None


class End(msgspec.Struct, tag="end", tag_field="type"):
    session: Name


Record = Header | Blob | Session | Turn | End
