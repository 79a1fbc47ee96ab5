"""What a recording has seen so far: counts, tokens, and the share that a perfect prefix cache would have hit."""

from __future__ import annotations

import hashlib
from collections import Counter

import msgspec

from loadgen.record.store import Entry


class SessionFigures(msgspec.Struct, kw_only=True):
    id: str
    agent: str
    model: str
    turns: int = 0
    prompt_tokens: int = 0  # of the last prompt
    output_tokens: int = 0
    ttft_s: float | None = None  # of the last turn
    last_s: float = 0.0  # end of the last turn, since the start of the recording


class Figures(msgspec.Struct, kw_only=True):
    """Tokens are counted without any template by the recorder's tokenizer, so that shares compare like with like."""

    calls: int = 0
    turns: int = 0
    prompt_tokens: int = 0
    hit_tokens: int = 0
    output_tokens: int = 0  # as upstream reported
    aborted: int = 0
    failed: int = 0  # HTTP errors and an unreachable upstream
    unread: int = 0  # calls of a model that could not be understood
    lost: int = 0  # passed unrecorded, the recorder being too far behind
    tags: Counter[str] = msgspec.field(default_factory=Counter)
    sessions: dict[str, SessionFigures] = {}

    @property
    def hit_share(self) -> float | None:
        return self.hit_tokens / self.prompt_tokens if self.prompt_tokens else None


class PerfectCache:
    """Every prompt ever seen, message by message: an infinite cache, exact to the last whole message."""

    def __init__(self) -> None:
        self._seen: set[bytes] = set()

    def add(self, prompt: list[Entry], answer: Entry | None) -> tuple[int, int]:
        """(tokens of the prompt, those at its beginning that were seen before); afterwards all of it was seen."""
        total = hit = 0
        digest = b""
        for entry in prompt:
            digest = hashlib.blake2b(digest + entry.key, digest_size=16).digest()
            total += entry.tokens
            if digest in self._seen:
                hit += entry.tokens
            else:
                self._seen.add(digest)
        if answer is not None:
            self._seen.add(hashlib.blake2b(digest + answer.key, digest_size=16).digest())
        return total, hit
