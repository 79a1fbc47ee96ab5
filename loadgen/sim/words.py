"""What a simulated model says: words that are one token each, the same for the same prompt.

Every word is a token of its own in any context, so that an answer of n tokens counts n tokens again when the
client sends it back.
"""

from __future__ import annotations

import zlib
from typing import Literal, NamedTuple

from loadgen.errors import InputError
from loadgen.sim.streams import Tokens
from loadgen.tokens.base import Tokenizer

_WORDS = (  # noqa: SIM905 - 88 lines otherwise
    "the of and to in is for that on with as at by from it this are be not or was but have an will can all "
    "one which when there their more has new other some time out up use any them these two make like then "
    "first way over also after work such just most code test file line read write call list name type value "
    "data set get run add key item class return result error check build open close start end next last case"
).split()


class Piece(NamedTuple):
    """What one generated token adds to the answer."""

    kind: Literal["think", "text", "tool"]
    id: int
    text: str


class Speaker:
    """Knows its words as (id, text): `_words` with a space in front, `_openings` without."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._words = _single(tokenizer, [" " + word for word in _WORDS])
        self._openings = _single(tokenizer, [*_WORDS, *(word.capitalize() for word in _WORDS)])
        if len(self._words) < 2 or not self._openings:
            raise InputError(
                f"tokenizer {tokenizer.name} has no single-token English words; the simulator cannot speak with it"
            )

    def seed(self, prompt: Tokens, seed: int | None) -> int:
        """Start of the answer to a prompt: of its length, its last tokens and the request's seed."""
        return zlib.crc32(prompt[-64:].tobytes(), (len(prompt) ^ (seed or 0)) & 0xFFFFFFFF)

    def compose(self, seed: int, tokens: int, *, think: bool = False, tool: bool = False) -> list[Piece]:
        """An answer of exactly `tokens` pieces: half of it thought if `think`, then a tool call if `tool`, else text.

        A tool call's arguments are valid JSON whole; its first and last piece hold the braces too.
        """
        thought = tokens // 2 if think else 0
        pieces = [Piece("think", *word) for word in self.say(seed ^ 1, thought)]
        words = self.say(seed, tokens - thought)
        if not tool:
            return pieces + [Piece("text", *word) for word in words]
        for at, (number, text) in enumerate(words):
            opening = '{"input": "' if at == 0 else ""
            closing = '"}' if at == len(words) - 1 else ""
            pieces.append(Piece("tool", number, opening + text + closing))
        return pieces

    def say(self, seed: int, tokens: int) -> list[tuple[int, str]]:
        """An answer of `tokens` tokens as (id, text); the first has no space in front."""
        state = seed
        said: list[tuple[int, str]] = []
        words = self._openings
        for _ in range(tokens):
            state = (state * 1103515245 + 12345) & 0x7FFFFFFF  # a linear congruence is enough to look busy
            said.append(words[(state >> 8) % len(words)])
            words = self._words
        return said


def _single(tokenizer: Tokenizer, texts: list[str]) -> list[tuple[int, str]]:
    encoded = ((tokenizer.encode(text), text) for text in texts)
    return [(ids[0], text) for ids, text in encoded if len(ids) == 1 and tokenizer.decode(ids) == text]
