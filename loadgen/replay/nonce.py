"""Nonces: what makes a prompt cold on a server that may have seen the content before.

A nonce is one line at the earliest position of the prompt that we control. Its input is (experiment or run, arm,
repetition, scope key, epoch), so that a resumed run never meets its own past. Every nonce must have the same number of
tokens, whatever its digits; some tokenizers merge digits, so there are two forms, and `prove` takes the first for which
that holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any, Literal

DIGITS = 16
Form = Literal["plain", "dashed"]
_PROOFS = 64


def digits(*key: object) -> str:
    """The digits for a key, `DIGITS` long."""
    text = "\x1f".join(str(part) for part in key)
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big")
    return str(number % 10**DIGITS).zfill(DIGITS)


def line(form: Form, number: str) -> str:
    """The text in front of the content. It ends in a newline, where pre-tokenizers cut."""
    return ("-".join(number) if form == "dashed" else number) + "\n"


def into_tools(tools: list[Any], nonce_line: str) -> list[Any]:
    """The tools with the nonce in front of the first one's description: where a template puts tools before everything
    else, this is the earliest place that we control. Returns a copy."""
    first = dict(tools[0])
    if isinstance(first.get("function"), dict):
        place = first["function"] = dict(first["function"])
    else:
        place = first
    place["description"] = nonce_line.strip() + " " + str(place.get("description") or "")
    return [first, *tools[1:]]


def prove(count: Callable[[str], int]) -> tuple[Form, int] | None:
    """The form whose token count does not depend on the digits, and that count; None when neither is constant.

    Tried on `_PROOFS` random numbers and on those of one repeated digit, which merge first where digits merge.
    """
    numbers = [digits("proof", i) for i in range(_PROOFS)] + [str(d) * DIGITS for d in range(10)]
    forms: tuple[Form, ...] = ("plain", "dashed")
    for form in forms:
        counts = {count(line(form, number)) for number in numbers}
        if len(counts) == 1:
            return form, counts.pop()
    return None
