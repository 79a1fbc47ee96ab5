"""What the HTML report draws, aggregated beforehand: the page's size does not grow with the number of turns."""

from __future__ import annotations

from typing import Any

import numpy as np

from loadgen.measure import metrics
from loadgen.report.columns import CLASSES
from loadgen.report.figures import figure
from loadgen.report.summary import Measured

POINTS = 4000  # at most this many dots in a scatter


def by_turn(run: Measured) -> dict[str, Any]:
    """Median, smallest and largest TTFT (s) of each turn index: {"turn": [..], "p50": [..], "min": [..], "max": [..]}."""
    ttft, has = figure(run.turns, metrics.TTFT, run.scale)
    turn = run.turns.turn[has]
    order = np.lexsort((ttft[has], turn))
    values, index = ttft[has][order] / 1e6, turn[order]
    numbers, starts, counts = np.unique(index, return_index=True, return_counts=True)
    return {
        "turn": numbers.tolist(),
        "p50": _round(values[starts + (counts + 1) // 2 - 1]),
        "min": _round(values[starts]),
        "max": _round(values[starts + counts - 1]),
    }


def timeline(run: Measured) -> dict[str, Any]:
    """TTFT (s) against the time of sending (s since the start), one series a class; a sample of POINTS turns when there are more.

    The slowest turns are always among them, since they are what one looks for.
    """
    turns = run.turns
    ttft, has = figure(turns, metrics.TTFT, run.scale)
    rows = np.flatnonzero(has)
    if rows.size > POINTS:
        slow = rows[np.argsort(ttft[rows])[-POINTS // 4 :]]
        rows = np.union1d(slow, rows[:: -(-rows.size * 4 // (POINTS * 3))])
    origin = int(turns.intended_ns.min()) if len(turns) else 0
    rows = rows[np.argsort(turns.send_ns[rows], kind="stable")]
    return {
        "x": _round((turns.send_ns[rows] - origin) / 1e9 * run.scale),
        "y": _round(ttft[rows] / 1e6),
        "class": [CLASSES[code] for code in turns.klass[rows].tolist()],
        "shown": int(rows.size),
        "of": len(turns),
    }


def _round(values: Any) -> list[float]:
    """Four significant digits are more than a pixel, and keep the page small."""
    return [float(f"{value:.4g}") for value in values.tolist()]
