"""Nonces: what makes a prompt cold on a server that may have seen the content before.

A nonce is a line of fixed-width decimal digits at the earliest position of the prompt that we control. Its
input is (experiment or run, arm, repetition, scope key, epoch), so that a resumed run never meets its own past.
Several candidates exist for each key: `choose` takes the first whose token count is the common one, since some
tokenizers merge digits.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable

DIGITS = 16


def candidate(*key: object, attempt: int = 0) -> str:
    """The digits for a key, `DIGITS` long."""
    text = "\x1f".join(str(part) for part in (*key, attempt))
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return str(number % 10**DIGITS).zfill(DIGITS)


def line(digits: str) -> str:
    """The text that goes in front of the content: the digits and a newline, where pre-tokenizers cut."""
    return digits + "\n"


def choose(keys: list[tuple[object, ...]], count: Callable[[str], int], tokens: int) -> list[str]:
    """One nonce per key, distinct, each of exactly `tokens` tokens by `count`. Raises ValueError if a key finds none in 200 tries."""
    chosen: list[str] = []
    seen: set[str] = set()
    for key in keys:
        for attempt in range(200):
            digits = candidate(*key, attempt=attempt)
            if digits not in seen and count(line(digits)) == tokens:
                break
        else:
            raise ValueError(f"no nonce of {tokens} tokens was found for {key}")
        seen.add(digits)
        chosen.append(digits)
    return chosen
