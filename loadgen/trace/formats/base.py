"""What every importer produces and what every format declares.

An importer turns files into families of `Agent`s (a main conversation, then its sub-agents, parents first), with
full prompts a call (or lengths, or blocks). `loadgen.trace.formats.build` makes sessions and turns of them: it finds `keep` and `append`, gaps and parents.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadgen.trace.model import Blocks, Fidelity, Message

_DATA_ERRORS = (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError, RecursionError)


@dataclass(slots=True)
class Call:
    """One request and its answer, as the source tells it. Times in seconds on the source's own clock; null: unknown."""

    prompt: list[Message] | None = None
    blocks: Blocks | None = None
    answer: Message | None = None
    start_s: float | None = None
    first_s: float | None = None
    end_s: float | None = None
    gap_s: float | None = None  # where the source tells the gap itself
    gap_kind: str | None = None  # "tool" or "human"; null: from the last message's role
    input_tokens: int | None = None
    output_tokens: int | None = None
    reasoning_tokens: int | None = None
    cached_tokens: int | None = None
    stop: str | None = None
    attempt: int = 1


@dataclass(slots=True)
class Agent:
    """One conversation. `parent`: id of another agent and the number of its call after which this one starts."""

    id: str
    calls: list[Call]
    parent: tuple[str, int] | None = None
    call_id: str | None = None
    wait: bool | None = None  # null: from the times
    group: str | None = None
    kind: str = "main"
    system: Any = None
    tools: Any = None


@dataclass
class Report:
    """What an import did not take over, by reason, with the first place of each."""

    skipped: Counter[str] = field(default_factory=Counter)
    notes: Counter[str] = field(default_factory=Counter)
    first: dict[str, str] = field(default_factory=dict)

    def skip(self, reason: str, where: str = "", count: int = 1) -> None:
        """`count` records were left out."""
        if count:
            self.skipped[reason] += count
        if where and count:
            self.first.setdefault(reason, where)

    def note(self, reason: str, where: str = "", count: int = 1) -> None:
        """Something was taken over changed or incomplete."""
        self.notes[reason] += count
        if where:
            self.first.setdefault(reason, where)

    @contextmanager
    def tolerate(self, reason: str, where: str = "") -> Iterator[None]:
        """Data of a foreign file may have any shape: what cannot be read is counted, not raised."""
        try:
            yield
        except _DATA_ERRORS:
            self.skip(reason, where)


@dataclass(frozen=True, slots=True)
class Head:
    """The beginning of a file, for detection: its first 64 KiB and the first JSON value in them, if any."""

    path: Path
    data: bytes
    value: Any  # first line as JSON, or the whole file's JSON, or null
    rows: Sequence[Any] = ()  # the JSON objects among the first lines


@dataclass(frozen=True, slots=True)
class Format:
    """A foreign format. `detect` looks at one file's head; `read` takes all files of the format together.

    `lost`: what the source does not tell, or what is not taken over, in words for docs and for the user.
    """

    name: str
    title: str
    fidelity: Fidelity
    lost: str
    detect: Callable[[Head], bool]
    read: Callable[[Sequence[Path], Report], Iterator[list[Agent]]]
    block_size: int | None = None
    licence: str | None = None  # of the public data in this format, where there is one
