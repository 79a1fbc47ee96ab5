"""What layouts, the two forms of a context and an endpoint's way of counting hand to each other."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import chain
from typing import Any, NamedTuple, Protocol

import msgspec

from loadgen.corpus.exact import Piece
from loadgen.errors import InputError

# The template's tokens are known by role sequence; what is left after that are merges at the seams, found in one or two rounds.
_ROUNDS = 12


class Conversation(msgspec.Struct):
    """What goes to the endpoint in a first turn; messages have the shape of OpenAI chat."""

    system: str
    tools: list[dict[str, Any]]
    messages: list[dict[str, Any]]


class Composed(NamedTuple):
    """One finished context.

    `data`: the bytes of its file. `tokens`: what its texts count. `front`: their first token ids. `rendered`: the
    first token ids of the endpoint's prompt, template included; empty without an endpoint.
    """

    data: bytes
    tokens: int
    front: list[int]
    files: list[str]
    conversation: Conversation
    rendered: Sequence[int] = ()


class Shared(NamedTuple):
    """What the contexts of one group begin with: exactly `tokens` tokens."""

    group: str
    text: str
    tokens: int
    files: list[str]


class Rendering(Protocol):
    """How an endpoint turns a conversation into a prompt."""

    def overhead(self, conversation: Conversation) -> int:
        """Tokens that the template adds for this role sequence and tool set, apart from the tokens of the parts."""
        ...

    def render(self, conversation: Conversation) -> list[int]:
        """Token ids of the whole prompt."""
        ...

    def own_prefix(self, conversation: Conversation) -> int:
        """Tokens with which the template begins every prompt of this form, whatever the contents."""
        ...


class Composer(Protocol):
    """One form of context. May be used from several threads."""

    @property
    def suffix(self) -> str:
        """How the names of its files end."""
        ...

    def compose(self, index: int, shared: Shared | None, files: Iterator[Piece]) -> Composed | None:
        """Context `index` with `files` in this order; None when they are too few."""
        ...

    def share(self, group: str, tokens: int, files: Iterator[Piece]) -> Shared | None:
        """What the contexts of `group` share; None when `files` are too few."""
        ...


def exactly(
    tokens: int,
    files: Iterator[Piece],
    compose: Callable[[Iterator[Piece], int, int], Composed | None],
    rendering: Rendering | None,
) -> Composed | None:
    """What `compose(files, tokens, skip)` makes, so that the endpoint, where there is one, counts exactly `tokens`.

    `skip`: how many ends that would do to pass over.
    """
    if rendering is None:
        return compose(files, tokens, 0)
    taken: list[Piece] = []

    def remembered() -> Iterator[Piece]:
        for piece in files:
            taken.append(piece)
            yield piece

    wanted, counted = tokens, 0
    tried: Counter[int] = Counter()
    for _ in range(_ROUNDS):
        # The end can merge with what the template puts behind it, so the difference may jump to and fro: where a number
        # of tokens was tried before, another end is taken.
        composed = compose(chain(tuple(taken), remembered()), wanted, tried[wanted])
        if composed is None:
            return None
        tried[wanted] += 1
        ids = rendering.render(composed.conversation)
        counted = len(ids)
        if counted == tokens:
            return composed._replace(rendered=ids[: len(composed.front)])
        wanted += tokens - counted
    raise InputError(
        f"the endpoint counts {counted:,} tokens where {tokens:,} were built, and correcting for the difference does not settle; "
        "count with the endpoint's own tokenizer (--tokenizer server)"
    )
