"""Text of an exact number of tokens, made of pieces that are counted once.

The rule: a piece begins with a character that is neither white space nor `/` and ends in a newline. Pre-tokenizers
of Tekken, o200k and their kin cut between such pieces anyway, so counts add up. Whether a tokenizer follows the rule
is tried once (`additive`); for one that does not, every count is of the whole text.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from typing import NamedTuple

from loadgen.errors import InputError
from loadgen.tokens.base import Tokenizer

# What an end is trimmed with when no cut of the piece gives the count: ordinary words, most of them one token.
_FILLERS = (" a", " of", ".", " to", ";", "0", " x1", "#")
_MAX_TRIM = 24


class Piece(NamedTuple):
    """A piece of text by the rule above, and where it comes from."""

    source: str
    text: str


class Filled(NamedTuple):
    """`text` has exactly the wanted tokens; `front` are its first token ids; `used` the sources in order."""

    text: str
    front: list[int]
    used: list[str]


def follows_rule(text: str) -> bool:
    return text[-1:] == "\n" and not text[0].isspace() and text[0] != "/"


_PROBES = (
    "import os\n",
    "{\n\n",
    "x = 1  \n",
    "Ünïcode ✓\n",
    "</file>\n",
    "a\n \n",
    '"""\n',
    "#\n",
    "word\t\n",
    "7\n",
    "(c)\r\n",
)


def additive(tokenizer: Tokenizer) -> bool:
    """Whether counts add up for this tokenizer: tried on all pairs and on one chain of short pieces."""
    counts = [tokenizer.count(probe) for probe in _PROBES]
    for left, a in zip(_PROBES, counts, strict=True):
        for right, b in zip(_PROBES, counts, strict=True):
            if tokenizer.count(left + right) != a + b:
                return False
    return tokenizer.count("".join(_PROBES)) == sum(counts)


class Filler:
    """Fills texts for one tokenizer. May be used from several threads."""

    def __init__(self, tokenizer: Tokenizer, *, front: int = 512) -> None:
        """`front`: how many of a text's first token ids to keep."""
        self.tokenizer = tokenizer
        self.front = front
        self._ratio = 0.3  # tokens a character, learnt; decides only how much goes into one call
        self.adds_up = additive(tokenizer)

    def fill(self, pieces: Iterator[Piece], tokens: int, *, end: str = "") -> Filled | None:
        """Take pieces until they hold `tokens` tokens and cut the last one to fit. None when the pieces run out before.

        The text ends with a non-space and then `end`, which is counted.

        One call of the tokenizer takes about 97 % of the text, and so proves the seams between its pieces; the rest is
        counted piece by piece and checked together with the piece before it. The result does not depend on the
        estimate behind the 97 %.
        """
        if not self.adds_up:
            return self._fill_whole(pieces, tokens, end)
        count = self.tokenizer.count
        taken: list[Piece] = []
        chars = 0
        for piece in pieces:
            taken.append(piece)
            chars += len(piece.text)
            if chars * self._ratio > tokens * 0.97:
                break
        block = len(taken)
        ids = self.tokenizer.encode("".join(piece.text for piece in taken))
        total = whole = len(ids)
        head = ids[: self.front]
        self._ratio = total / max(chars, 1)
        del ids
        while total < tokens:
            following = next(pieces, None)
            if following is None:
                return None
            taken.append(following)
            total += count(following.text)
        last = count(taken[-1].text)
        while (
            total - last >= tokens
        ):  # the estimate was too high: give pieces back until only the last one is over
            total -= last
            taken.pop()
            last = count(taken[-1].text)
        parts = [piece.text for piece in taken[:-1]]
        last_part = self._end(parts, taken[-1].text, tokens - (total - last), end)
        overlap = "".join(parts[max(0, min(block, len(parts)) - 1) :])
        if count(overlap + last_part) != count(overlap) + count(last_part):
            raise InputError(
                f"{self.tokenizer.name} merges tokens across pieces, so its counts do not add up here"
            )
        text = "".join(parts) + last_part
        if (
            min(whole, total - last) < self.front
        ):  # the first ids are not all from that one call, or reach the cut
            head = self.tokenizer.encode(text)[: self.front]
        return Filled(text, head, [piece.source for piece in taken])

    def _end(self, parts: list[str], text: str, tokens: int, end: str) -> str:
        """The beginning of `text` with exactly `tokens` tokens; takes pieces off `parts` where no cut of `text` gives that."""
        wanted = tokens
        while (found := cut(self.tokenizer, text, tokens, end)) is None:
            if not parts:
                raise InputError(
                    f"no text of exactly {wanted} tokens can be cut for {self.tokenizer.name}; ask for another number of tokens"
                )
            before = parts.pop()
            tokens += self.tokenizer.count(before)
            text = before + text
        return found

    def _fill_whole(self, pieces: Iterator[Piece], tokens: int, end: str) -> Filled | None:
        """`fill` for a tokenizer whose counts do not add up: the whole text is counted, pieces only say when to."""
        count = self.tokenizer.count
        taken: list[Piece] = []
        estimate = 0
        for piece in pieces:
            taken.append(piece)
            estimate += count(piece.text)
            if estimate >= tokens and count("".join(p.text for p in taken)) >= tokens:
                break
        else:
            return None
        text = self._end([], "".join(piece.text for piece in taken), tokens, end)
        return Filled(text, self.tokenizer.encode(text)[: self.front], [piece.source for piece in taken])


def cut(tokenizer: Tokenizer, text: str, tokens: int, end: str = "") -> str | None:
    """The beginning of `text` with exactly `tokens` tokens that ends with a non-space and `end`; None when none was found.

    Where a cut between two tokens does not count up to `tokens`, or leaves a space at the end, a few tokens less are
    taken and short words fill up.
    """
    ids = tokenizer.encode(text)
    for drop in range(min(_MAX_TRIM, tokens)):
        start = tokenizer.decode(ids[: tokens - drop]).rstrip("\ufffd")
        if not text.startswith(
            start
        ):  # not every tokenizer gives its text back: look for the place by counting
            start = text[
                : bisect_left(range(len(text)), tokens - drop, key=lambda n: tokenizer.count(text[:n]))
            ]
        for candidate in _ends(start.rstrip(), drop):
            if candidate and tokenizer.count(candidate + end) == tokens:
                return candidate + end
    return None


def _ends(start: str, drop: int) -> Iterator[str]:
    yield start
    for filler in _FILLERS:
        for times in range(1, drop + 1):
            yield start + filler * times
