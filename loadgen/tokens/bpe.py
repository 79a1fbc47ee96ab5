"""A tiktoken encoding behind our interface."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from loadgen.errors import InputError

if TYPE_CHECKING:
    import tiktoken


class BpeTokenizer:
    """Byte-level BPE by tiktoken. `encode_ordinary` is used throughout: it never makes special tokens, gives the
    same ids as `encode(…, disallowed_special=())` and is the faster of the two."""

    def __init__(
        self, name: str, fingerprint: str, encoding: tiktoken.Encoding, special_strings: tuple[str, ...]
    ) -> None:
        self.name = name
        self.fingerprint = fingerprint
        self.special_strings = special_strings
        self._encoding = encoding

    def encode(self, text: str) -> list[int]:
        try:
            return self._encoding.encode_ordinary(text)
        except BaseException as error:
            # The regex engine panics on some inputs of many MB without a break; PanicException is a BaseException.
            if isinstance(error, KeyboardInterrupt | SystemExit | GeneratorExit | MemoryError):
                raise
            raise InputError(
                f"{self.name} cannot tokenize this text ({type(error).__name__}: {error})"
            ) from None

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        """Text of `ids`; bytes that are no UTF-8 become U+FFFD."""
        return self._encoding.decode(list(ids))


def fingerprint(pattern: str, ranks: Mapping[bytes, int], specials: Sequence[str]) -> str:
    """SHA-256 (hex) over pattern, special strings and pieces in the order of their ids: all that decides the ids.

    Every part goes in with its length in front, so that no two different vocabularies give the same bytes.
    """
    digest = hashlib.sha256()
    for text in (pattern, *specials):
        raw = text.encode()
        digest.update(b"%d:%b" % (len(raw), raw))
    first = min(ranks.values(), default=0)
    pieces = sorted(ranks, key=ranks.__getitem__)
    digest.update(b"|%d|" % first)
    digest.update(b"".join(b"%d:%b" % (len(piece), piece) for piece in pieces))
    return digest.hexdigest()
