"""What each number of a profile may be.

The bounds are wide: they keep out what has no meaning (a negative gap, a chance of 2) and what arithmetic cannot bear (a
spread of 1e9 overflows), not what is merely rare.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Any

Bounds = tuple[float, float]

_TOKENS: Bounds = (0, 1e9)
_SECONDS: Bounds = (0, 1e9)  # 30 years: clocks of real logs jump
_SHARE: Bounds = (0, 1)
_FACTOR: Bounds = (0, 1e6)
_TURN: Bounds = (0, 1e9)
_LOADING: Bounds = (-1, 1)  # of a normal score

_NUMBERS: dict[str, Bounds] = {
    "block_size": (1, 1 << 20),
    "shared_prefix": _TOKENS,
    "service": _SECONDS,
    "requests": (0, 1e9),
    "first": _TOKENS,
    "loop_end": _SHARE,
    "habits": _LOADING,
    "decay": _SHARE,
    "answer": _LOADING,
    "turn": _TURN,
    "prompt": _TOKENS,
    "tokens": _TOKENS,
    "growth": _LOADING,
    "run": _LOADING,
    "level": (-10, 10),
    "output_tool": _TOKENS,
    "output_final": _TOKENS,
    "gap_tool_s": _SECONDS,
    "gap_human_s": _SECONDS,
    "events": _TOKENS,
    "spread": (0, 10),  # of a logarithm
    "early_tool": _SHARE,
    "early_human": _SHARE,
    "fan_out": (0, 1000),
}
_STEPS: dict[str, tuple[Bounds, Bounds]] = {
    "stops": (_TOKENS, _FACTOR),
    "loop_end_at": (_TURN, _FACTOR),
    "chance": (_TOKENS, _SHARE),  # of `leaves`; that of `sub_agents` is one share
    "at": (_TOKENS, _SHARE),
}
"""Rows of (from, what holds from there on): the bounds of each; the first must rise."""


def fault(profile: dict[str, Any]) -> str | None:
    """The first field of a profile, as dictionaries and lists, that is out of bounds, as a sentence; null for none."""
    return next(_faults(profile, "", ""), None)


def _faults(value: Any, name: str, path: str) -> Iterator[str]:
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _faults(inner, key, f"{path}.{key}" if path else key)
    elif name in _STEPS and isinstance(value, list | tuple):
        yield from _step_faults(value, name, path)
    elif isinstance(value, list | tuple):
        for number, inner in enumerate(value):
            yield from _faults(inner, name, f"{path}[{number}]")
    elif isinstance(value, int | float):
        bounds = _SHARE if name == "chance" else _NUMBERS.get(name)
        if bounds is not None:
            yield from _outside(value, bounds, path)


def _step_faults(rows: Sequence[Any], name: str, path: str) -> Iterator[str]:
    for number, row in enumerate(rows):
        for place, bounds in enumerate(_STEPS[name]):
            yield from _outside(row[place], bounds, f"{path}[{number}][{place}]")
    if any(after[0] <= before[0] for before, after in pairwise(rows)):
        yield f"the first numbers of `{path}` must rise"


def _outside(number: float, bounds: Bounds, path: str) -> Iterator[str]:
    low, high = bounds
    # a comparison with what is no number is false
    if not (math.isfinite(number) and low <= number <= high):
        yield f"`{path}` must be a number from {low:g} to {high:g}, not {number:g}"
