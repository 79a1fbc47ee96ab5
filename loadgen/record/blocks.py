"""Content-free turns for `--hash-only`: prompts as 64-token blocks, of which only the sharing is written.

Digests of blocks stay in memory and under a random salt; the file holds "so many blocks as that earlier turn, so
many new ones", from which no text can be guessed.
"""

from __future__ import annotations

import hashlib
import secrets
from array import array
from collections.abc import Iterable

from loadgen.trace.model import Blocks

BLOCK_TOKENS = 64


class BlockIndex:
    """Finds for each prompt the longest beginning, in whole blocks, that an earlier turn held (prompt, then answer)."""

    def __init__(self) -> None:
        self._first: dict[bytes, tuple[str, int]] = {}
        self._salt = secrets.token_bytes(16)

    def add(
        self, session: str, index: int, prompt: Iterable[array[int]], answer: array[int], output_tokens: int
    ) -> tuple[Blocks, int]:
        """The blocks of a turn, and its prompt's tokens.

        `prompt` is token ids in pieces. Of the answer, at most `output_tokens` count, since readers place it by that.
        """
        ids = array("I")
        for piece in prompt:
            ids += piece
        tokens = len(ids)
        whole = tokens // BLOCK_TOKENS
        chain = self._chain(ids + answer[:output_tokens])
        reuse = 0
        while reuse < whole and chain[reuse] in self._first:
            reuse += 1
        source = self._first[chain[reuse - 1]] if reuse else None
        if source == (session, index - 1):
            source = None  # the previous turn is what readers assume
        for digest in chain[reuse:]:
            self._first.setdefault(digest, (session, index))
        return (
            Blocks(from_=source, reuse=reuse, new=whole - reuse, tail_tokens=tokens % BLOCK_TOKENS),
            tokens,
        )

    def _chain(self, ids: array[int]) -> list[bytes]:
        result = []
        last = self._salt
        data = ids.tobytes()
        size = BLOCK_TOKENS * ids.itemsize
        for start in range(0, len(data) - size + 1, size):
            last = hashlib.blake2b(last + data[start : start + size], digest_size=16).digest()
            result.append(last)
        return result
