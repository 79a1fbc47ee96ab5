"""Text of an exact number of tokens, made of pieces that are counted once.

The rule: a piece begins with a character that is neither white space nor `/` and ends in a newline. Pre-tokenizers
of Tekken, o200k and their kin cut between such pieces anyway, so counts add up. Whether a tokenizer follows the rule
is tried once (`additive`); for one that does not, every count is of the whole text.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain
from typing import NamedTuple

from loadgen.errors import InputError
from loadgen.tokens.base import Tokenizer

# What an end is trimmed with when no cut of the piece gives the count: ordinary words, most of them one token.
_FILLERS = (" a", " of", ".", " to", ";", "0", " x1", "#")
_MAX_TRIM = 24
_MEETING = re.compile(r"\n(?=[^\s/])")
_PART = 4096
# How much goes into a call: at first so many characters for each token that is wanted, far fewer than it takes; then this
# share of what is left, by the tokens a character so far. Nothing is learnt from other texts: which files are read for one
# must not depend on what was built before it.
_FIRST = 0.8
_LATER = 0.5
_SEAM = 100  # characters on each side of a seam that are looked at


class Piece(NamedTuple):
    """A piece of text by the rule above, and where it comes from."""

    source: str
    text: str


class Filled(NamedTuple):
    """`text` has exactly the wanted tokens; `front` are its first token ids; `used` the sources in order.

    `unused`: pieces that were taken and not needed, in order; how many depends on an estimate.
    """

    text: str
    front: list[int]
    used: list[str]
    unused: list[Piece]


class _Blocks(NamedTuple):
    """Pieces that were counted many in a call.

    `unproven`: places in `taken` in front of which lies a seam that no call has seen. `total`: tokens of all, `head` the
    first ids. `waiting`: a piece that was taken from the iterator and is in no block.
    """

    taken: list[Piece]
    unproven: list[int]
    total: int
    head: list[int]
    waiting: Piece | None


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
        self.adds_up = additive(tokenizer)

    def fill(self, pieces: Iterator[Piece], tokens: int, *, end: str = "", skip: int = 0) -> Filled | None:
        """Take pieces until they hold `tokens` tokens and cut the last one to fit. None when the pieces run out before.

        The text ends with a non-space and then `end`, which is counted. `skip`: how many ends that would do to pass over.

        A few calls of the tokenizer take nearly all of the text, and so prove the seams between their pieces; the end is
        counted part by part. The other seams are checked. The result does not depend on how much goes into a call.
        """
        if not self.adds_up:
            return self._fill_whole(pieces, tokens, end, skip)
        taken, unproven, total, head, waiting = self._in_blocks(pieces, tokens)
        unused: list[Piece] = []
        while total >= tokens:
            # The estimate was too high: give back, and begin again with the piece that is over.
            if waiting is not None:
                unused.insert(0, waiting)
            waiting = taken.pop()
            total -= self.tokenizer.count(waiting.text)
        texts = [piece.text for piece in taken]
        last: list[int] = []
        while total < tokens:
            following = waiting or next(pieces, None)
            if following is None:
                return None
            waiting = None
            taken.append(following)
            for part in _parts(following.text):
                unproven.append(len(texts))
                texts.append(part)
                last = self.tokenizer.encode(part)
                total += len(last)
                if total >= tokens:
                    break
        if waiting is not None:
            unused.insert(0, waiting)
        before = total - len(last)
        texts.append(self._end(texts, last, tokens - before, end, skip))
        for place in sorted({*unproven, len(texts) - 1}):
            if 0 < place < len(texts):
                self._check_seam(texts[place - 1], texts[place])
        text = "".join(texts)
        if min(len(head), before) < self.front:
            # The first ids are not all from those calls, or reach the cut.
            head = self.tokenizer.encode(text)[: self.front]
        return Filled(text, head, [piece.source for piece in taken], unused)

    def _in_blocks(self, pieces: Iterator[Piece], tokens: int) -> _Blocks:
        """Take pieces and count many in a call: a part of `tokens` first, then, by what that had, most of what is left, until
        not one piece more fits."""
        taken: list[Piece] = []
        unproven: list[int] = []
        head: list[int] = []
        total, chars = 0, 0
        waiting: Piece | None = None
        while total < tokens:
            block: list[Piece] = []
            room = (tokens - total) * _LATER * chars / total if total else tokens * _FIRST
            for piece in pieces if waiting is None else chain((waiting,), pieces):
                waiting = None
                room -= len(piece.text)
                if room < 0 and (block or taken):
                    waiting = piece
                    break
                block.append(piece)
            if not block:
                break
            text = "".join(piece.text for piece in block)
            ids = self.tokenizer.encode(text)
            head += ids[: max(0, self.front - len(head))]
            unproven.append(len(taken))
            taken += block
            total += len(ids)
            chars += len(text)
        return _Blocks(taken, unproven, total, head, waiting)

    def _check_seam(self, left: str, right: str) -> None:
        """Raise InputError when tokens merge where two pieces meet; what is far from there cannot matter to it."""
        left, right = left[-_SEAM:], right[:_SEAM]
        if self.tokenizer.count(left + right) != self.tokenizer.count(left) + self.tokenizer.count(right):
            raise InputError(
                f"{self.tokenizer.name} merges tokens across pieces, so its counts do not add up here"
            )

    def _end(self, texts: list[str], ids: list[int], tokens: int, end: str, skip: int) -> str:
        """The beginning of the last of `texts`, whose ids are `ids`, with exactly `tokens` tokens.

        Takes it off `texts`, and those before it where no cut gives the count.
        """
        wanted = tokens
        text = texts.pop()
        while True:
            found = cut(self.tokenizer, text, tokens, end, ids=ids, skip=skip)
            if found is not None:
                return found
            if not texts:
                raise InputError(
                    f"no text of exactly {wanted} tokens can be cut for {self.tokenizer.name}; ask for another number of tokens"
                )
            before = texts.pop()
            tokens += self.tokenizer.count(before)
            text = before + text
            ids = self.tokenizer.encode(text)

    def _fill_whole(self, pieces: Iterator[Piece], tokens: int, end: str, skip: int) -> Filled | None:
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
        whole = "".join(piece.text for piece in taken)
        text = self._end([whole], self.tokenizer.encode(whole), tokens, end, skip)
        return Filled(text, self.tokenizer.encode(text)[: self.front], [piece.source for piece in taken], [])


def _parts(text: str) -> Iterator[str]:
    """`text` in parts of at least 4,096 characters, cut where pieces could meet."""
    start = 0
    while found := _MEETING.search(text, start + _PART):
        yield text[start : found.end()]
        start = found.end()
    yield text[start:]


def cut(
    tokenizer: Tokenizer,
    text: str,
    tokens: int,
    end: str = "",
    *,
    ids: list[int] | None = None,
    skip: int = 0,
) -> str | None:
    """The beginning of `text` with exactly `tokens` tokens that ends with a non-space and `end`; None when none was found.

    Where a cut between two tokens does not count up to `tokens`, or leaves a space at the end, a few tokens less are
    taken and short words fill up. `ids`: those of `text`, where they are known. `skip`: how many that would do to pass over.
    """
    ids = tokenizer.encode(text) if ids is None else ids
    for drop in range(min(_MAX_TRIM, tokens)):
        start = tokenizer.decode(ids[: tokens - drop]).rstrip("\ufffd")
        if not text.startswith(start):  # not every tokenizer gives its text back
            start = text[: _place(tokenizer, text, tokens - drop)]
        for candidate in _ends(start.rstrip(), drop):
            if candidate and tokenizer.count(candidate + end) == tokens:
                if not skip:
                    return candidate + end
                skip -= 1
    return None


def _place(tokenizer: Tokenizer, text: str, tokens: int) -> int:
    """How many characters of `text` have `tokens` tokens, by counting."""
    return bisect_left(range(len(text)), tokens, key=lambda length: tokenizer.count(text[:length]))


def _ends(start: str, drop: int) -> Iterator[str]:
    yield start
    for filler in _FILLERS:
        for times in range(1, drop + 1):
            yield start + filler * times
