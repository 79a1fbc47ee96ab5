"""Proof that contexts are distinct: the longest common prefix of any two, in tokens."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

BLOCK = 16
"""Tokens in the smallest KV block in common use (vLLM's default); sharing fewer shares none."""


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """Number of equal ids at the start of `a` and `b`."""
    for index, (left, right) in enumerate(zip(a, b, strict=False)):
        if left != right:
            return index
    return min(len(a), len(b))


def longest_common(fronts: Sequence[list[int]]) -> tuple[int, int, int]:
    """(tokens, i, j): the pair with the longest common prefix. (0, 0, 0) for fewer than two.

    In sorted order the longest prefix is one of two neighbours: n log n instead of n² comparisons.
    """
    order = sorted(range(len(fronts)), key=lambda index: fronts[index])
    best = (0, 0, 0)
    for i, j in pairwise(order):
        length = common(fronts[i], fronts[j])
        if length > best[0]:
            best = (length, min(i, j), max(i, j))
    return best


def matrix(fronts: Sequence[Sequence[int]]) -> list[list[int]]:
    """Common prefix of every pair, in tokens; the diagonal is each one's own length. For showing small sets."""
    return [[common(a, b) for b in fronts] for a in fronts]
