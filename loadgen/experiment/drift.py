"""Does it matter which run came first? Looked at, never corrected for: a balanced order takes it out of the comparison."""

from __future__ import annotations

import math
from collections.abc import Mapping
from statistics import fmean

from loadgen.report.compare import describe_ratio
from loadgen.report.statistics import difference


def order_effect(values: Mapping[tuple[str, str], list[tuple[int, float]]]) -> str | None:
    """A sentence on runs that went last in their block against runs that went first; null with fewer than two of each.

    `values` holds by (cell, arm) the (position, figure) of every run; figures are taken relative to the mean of their own cell and arm.
    """
    sides: dict[bool, list[float]] = {False: [], True: []}
    last = max((position for runs in values.values() for position, _ in runs), default=0)
    for runs in values.values():
        if len({position for position, _ in runs}) < 2:
            continue
        mean = fmean(math.log(value) for _, value in runs)
        for position, value in runs:
            if position in (0, last):
                sides[position == last].append(value / math.exp(mean))
    if min(map(len, sides.values())) < 2:
        return None
    found = difference(sides[False], sides[True])
    assert found.low is not None
    assert found.high is not None
    seen = "an order effect is seen" if found.low > 1 or found.high < 1 else "no order effect is seen"
    return (
        f"{seen}: a run that goes last in its block {describe_ratio(found.ratio)} one that goes first "
        f"(95 % interval of the ratio {found.low:.3f} to {found.high:.3f})"
    )
