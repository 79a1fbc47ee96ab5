"""Proof that contexts are distinct: the longest common prefix of any two, in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import NamedTuple

from loadgen.errors import InputError

BLOCK = 16
"""Tokens in the smallest KV block in common use (vLLM's default); sharing fewer shares none."""


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of equal ids at the start of `a` and `b`."""
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))


class Proof(NamedTuple):
    """Longest common prefixes over all pairs, in tokens: within a group, and between contexts of different groups or of none."""

    within: int
    across: int


def prove(
    fronts: Sequence[list[int]],
    groups: Sequence[str | None],
    shared: int,
    *,
    template: int = 0,
    around: int = 0,
) -> Proof:
    """Show that no two contexts share a KV block beyond what they are meant to share.

    `shared` tokens are common to a group; every prompt begins with `template` tokens of the template, and up to `around`
    more of them stand between what a group shares. Raises InputError naming a pair that shares more (a whole block
    of 16 more), or a group that shares less.
    """
    order = sorted(range(len(fronts)), key=lambda index: fronts[index])
    across = (0, 0, 0)
    # The longest prefix between groups is one between neighbours of different groups in sorted order as well.
    for i, j in pairwise(order):
        if groups[i] is None or groups[i] != groups[j]:
            length = common(fronts[i], fronts[j])
            across = max(across, (length, min(i, j), max(i, j)))
    _limit(*across, template)
    within = 0
    for group in sorted({group for group in groups if group is not None}):
        members = [index for index in order if groups[index] == group]
        for i, j in pairwise(members):
            length = common(fronts[i], fronts[j])
            within = max(within, length)
            _limit(length, i, j, template + around + shared)
            if length < shared:
                raise InputError(
                    f"contexts {i} and {j} share {length} tokens, fewer than the {shared} of their group {group}"
                )
    return Proof(within, across[0])


def _limit(length: int, i: int, j: int, allowed: int) -> None:
    if length >= allowed + BLOCK:
        raise InputError(
            f"contexts {i} and {j} share their first {length} tokens, a KV block or more beyond the {allowed} that they may; use another seed"
        )


def matrix(fronts: Sequence[list[int]]) -> list[list[int]]:
    """Common prefix of every pair, in tokens; the diagonal is each one's own length. For showing small sets."""
    return [[common(a, b) for b in fronts] for a in fronts]
