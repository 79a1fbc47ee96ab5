"""What every tokenizer can do here."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Tokenizer(Protocol):
    """Plain text to token ids. Special tokens are never produced from text: a source file may contain their strings.

    `name` is what the user types (`tekken`, `tiktoken:o200k_base`, `hf:PATH`); `fingerprint` is the SHA-256
    (hex) of what decides the ids: ranks, pattern and special tokens.
    """

    @property
    def name(self) -> str: ...
    @property
    def fingerprint(self) -> str: ...
    @property
    def special_strings(self) -> tuple[str, ...]:
        """Strings that a server may read as one special token when they occur in text."""
        ...

    def encode(self, text: str) -> list[int]: ...
    def count(self, text: str) -> int: ...
    def decode(self, ids: Sequence[int]) -> str: ...
