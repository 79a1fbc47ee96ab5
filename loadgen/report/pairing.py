"""Whether two runs did the same work: paired turns have equal prompt and generated tokens (the nonce may differ)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from loadgen.report.columns import ABSENT, Ints, Turns
from loadgen.report.summary import Measured
from loadgen.report.validity import Code, Reason, reason


def _last_attempts(turns: Turns) -> dict[tuple[str, int], int]:
    """(session, turn) to the row of its last attempt."""
    names = turns.sessions
    order = np.argsort(turns.attempt, kind="stable")
    return {(names[turns.session[row]], int(turns.turn[row])): int(row) for row in order}


def differences(a: Turns, b: Turns) -> str:
    """What differs between the work of two runs, in words; empty when nothing does.

    Failed turns are not compared (they are errors already); a turn that only one run has is a difference.
    """
    rows_a, rows_b = _last_attempts(a), _last_attempts(b)
    found = []
    if alone := len(rows_a.keys() ^ rows_b.keys()):
        found.append(f"{alone} turns exist in one arm only")
    both = rows_a.keys() & rows_b.keys()
    left = np.fromiter((rows_a[key] for key in both), dtype=np.int64, count=len(both))
    right = np.fromiter((rows_b[key] for key in both), dtype=np.int64, count=len(both))
    ended = a.ok[left] & b.ok[right]
    for name, words in (("prompt_tokens", "prompt tokens"), ("output_tokens", "generated tokens")):
        one: Ints = getattr(a, name)[left][ended]
        other: Ints = getattr(b, name)[right][ended]
        unequal = int(np.count_nonzero((one != other) & (one != ABSENT) & (other != ABSENT)))
        if unequal:
            found.append(
                f"{unequal} of {len(both)} paired turns differ in {words} ({int(one.sum()):,} against {int(other.sum()):,} in all)"
            )
    return "; ".join(found)


def arms_differ(runs: Sequence[Measured]) -> list[Reason]:
    """A reason for each run whose work is not the first one's."""
    found = []
    for other in runs[1:]:
        if words := differences(runs[0].turns, other.turns):
            found.append(reason(Code.ARMS_DIFFER, f"{runs[0].info.arm} against {other.info.arm}: {words}."))
    return found
