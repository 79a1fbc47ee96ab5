"""Whether two runs did the same work: paired turns have equal prompt and generated tokens (the nonce may differ)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadgen.report.columns import ABSENT, Ints, Turns
from loadgen.report.summary import Measured
from loadgen.report.validity import Code, Reason, reason


def _last_attempts(turns: Turns, numbers: dict[str, int]) -> tuple[Ints, Ints]:
    """(keys, rows) of the last attempt of each turn, by key; `numbers` gives sessions of several runs common numbers."""
    session = np.asarray([numbers.setdefault(name, len(numbers)) for name in turns.sessions], dtype=np.int64)
    key = (session[turns.session] << 32) | turns.turn
    order = np.lexsort((turns.attempt, key))
    last = np.append(key[order][1:] != key[order][:-1], True) if order.size else np.zeros(0, dtype=bool)
    return key[order][last], order[last]


def differences(a: Turns, b: Turns) -> str:
    """What differs between the work of two runs, in words; empty when nothing does.

    Failed turns are not compared (they are errors already); a turn that only one run has is a difference.
    """
    numbers: dict[str, int] = {}
    (keys_a, rows_a), (keys_b, rows_b) = _last_attempts(a, numbers), _last_attempts(b, numbers)
    both, in_a, in_b = np.intersect1d(keys_a, keys_b, assume_unique=True, return_indices=True)
    left, right = rows_a[in_a], rows_b[in_b]
    found = []
    if alone := int(keys_a.size + keys_b.size - 2 * both.size):
        found.append(f"{alone} turns exist in one arm only")
    ended = a.ok[left] & b.ok[right]
    for name, words in (("prompt_tokens", "prompt tokens"), ("output_tokens", "generated tokens")):
        one: Ints = getattr(a, name)[left][ended]
        other: Ints = getattr(b, name)[right][ended]
        unequal = int(np.count_nonzero((one != other) & (one != ABSENT) & (other != ABSENT)))
        if unequal:
            found.append(
                f"{unequal} of {both.size} paired turns differ in {words} ({int(one.sum()):,} against {int(other.sum()):,} in all)"
            )
    return "; ".join(found)


def arms_differ(runs: Sequence[Measured]) -> list[Reason]:
    """A reason for each run whose work is not the first one's."""
    found = []
    for other in runs[1:]:
        if words := differences(runs[0].turns, other.turns):
            found.append(reason(Code.ARMS_DIFFER, f"{runs[0].info.arm} against {other.info.arm}: {words}."))
    return found
