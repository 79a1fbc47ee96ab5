"""Trace format, version 1: the records of a trace file as typed structures (design, section 3).

A trace is JSON Lines; every line is one of these records, told apart by `type`. The prompt of turn k is
`P(k) = (P(k-1) + [answer(k-1)])[:keep] + append`, where system and tools are not counted and no `keep`
means all.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

VERSION = 1
Fidelity = Literal["bodies", "messages", "blocks", "lengths"]
GapKind = Literal["tool", "human"]

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
    block_size: int | None = None


class Blob(msgspec.Struct, tag="blob", tag_field="type", omit_defaults=True, kw_only=True):
    """Content stored once. `json` holds a value and `sha256` is the digest of its compact JSON (orjson);
    `file` names a UTF-8 text file relative to the trace's folder and `sha256` is the digest of its bytes."""

    sha256: str
    json: Any = None
    file: str | None = None


class Parent(msgspec.Struct, omit_defaults=True, kw_only=True):
    session: str
    turn: int
    call_id: str | None = None
    wait: bool = True


class Session(msgspec.Struct, tag="session", tag_field="type", omit_defaults=True, kw_only=True):
    id: str
    parent: Parent | None = None
    group: str | None = None
    start_s: float = 0.0
    agent: str = "main"
    system: str | None = None  # "sha256:…" of a blob whose json is the system prompt (string)
    tools: str | None = None  # "sha256:…" of a blob whose json is the list of tools


class Gap(msgspec.Struct, omit_defaults=True):
    """Time from the end of the previous turn (and of every awaited child) to the start of this one."""

    kind: GapKind
    s: float


class Blocks(msgspec.Struct, omit_defaults=True, kw_only=True):
    """A prompt of a content-free trace: `reuse` blocks of an earlier turn (prompt, then answer), `new` fresh ones and a tail."""

    from_: tuple[str, int] | None = msgspec.field(name="from", default=None)
    reuse: int
    new: int
    tail_tokens: int = 0


class Seen(msgspec.Struct, omit_defaults=True):
    """What the source measured."""

    ttft_s: float | None = None
    e2e_s: float | None = None


class Turn(msgspec.Struct, tag="turn", tag_field="type", omit_defaults=True, kw_only=True):
    session: str
    index: int
    attempt: int = 1
    keep: int | None = None
    append: list[Message] | None = None
    blocks: Blocks | None = None
    answer: Message | None = None
    gap: Gap | None = None
    input_tokens: int | None = None  # the whole prompt, template included
    output_tokens: int | None = None
    reasoning_tokens: int | None = None  # part of output_tokens
    cached_tokens: int | None = None  # part of input_tokens
    stop: str | None = None
    seen: Seen | None = None


class End(msgspec.Struct, tag="end", tag_field="type"):
    session: str


Record = Header | Blob | Session | Turn | End
