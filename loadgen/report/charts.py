"""What the HTML report draws, aggregated beforehand: the page's size does not grow with the number of turns.

A series is {"class": …, "x": […], "y": […]}: one class of turns of one run. Times are endpoint seconds.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from loadgen.measure import metrics
from loadgen.measure.hist import Histogram
from loadgen.report.columns import ABSENT, CLASSES, Bools, Ints, Turns
from loadgen.report.figures import figure
from loadgen.report.steady import window
from loadgen.report.summary import Measured, Timeline

POINTS = 2500  # at most this many dots a scatter
INDEXES = 300  # at most this many turn indexes; more are drawn in bins
_STEPS = 120
Series = dict[str, Any]


def spectrum(run: Measured) -> list[Series]:
    """TTFT percentiles by class: x counts nines (1 is p90, 2 is p99), y is the value.

    `supported` is the x beyond which the sample is too small for its percentile (0.05^(1/n)); `n` counts censored turns,
    which end the curve early.
    """
    found = []
    for name in CLASSES:
        histogram = run.histograms.get(metrics.TTFT, name)
        if histogram.n:
            x, y = _curve(histogram)
            supported = -math.log10(1 - 0.05 ** (1 / histogram.n))
            found.append({"class": name, "n": histogram.n, "x": x, "y": y, "supported": round(supported, 4)})
    return found


def _curve(histogram: Histogram) -> tuple[list[float], list[float]]:
    last = math.log10(histogram.n) if histogram.n > 1 else 0.3
    nines = np.unique(np.round(np.linspace(0.0, last, _STEPS), 4))
    values = histogram.percentiles_us(tuple(float(1 - 10.0**-x) for x in nines))
    kept = [(float(x), value / 1e6) for x, value in zip(nines, values, strict=True) if value is not None]
    return [x for x, _ in kept], _round(np.asarray([y for _, y in kept]))


def by_turn(run: Measured) -> Series:
    """Median, smallest and largest TTFT of each turn index."""
    ttft, has = figure(run.turns, metrics.TTFT, run.scale)
    turn = run.turns.turn[has]
    width = int(turn.max()) // INDEXES + 1 if turn.size else 1
    index = turn // width * width
    order = np.lexsort((ttft[has], index))
    values = ttft[has][order] / 1e6
    numbers, starts, counts = np.unique(index[order], return_index=True, return_counts=True)
    return {
        "x": numbers.tolist(),
        "p50": _round(values[starts + (counts + 1) // 2 - 1]),
        "min": _round(values[starts]),
        "max": _round(values[starts + counts - 1]),
        "n": counts.tolist(),
        "bin": width,
    }


def timeline(run: Measured, time: Timeline) -> list[Series]:
    """TTFT against the time of sending since the start."""
    return _scatter(run, time.seconds(run.turns.send_ns), run.turns.send_ns != ABSENT)


def rounds(run: Measured, time: Timeline) -> list[list[float]]:
    """Start and end (s) of each round of a sweep; empty for other schedules."""
    if run.info.schedule.get("kind") != "sweep":
        return []
    turns = run.turns
    numbers = np.unique(turns.turn)
    if numbers.size > 60:
        return []
    sent, ended = time.seconds(turns.send_ns), time.seconds(turns.end_ns)
    return [_round(np.asarray([sent[turns.turn == k].min(), ended[turns.turn == k].max()])) for k in numbers]


def steady(run: Measured, time: Timeline) -> list[float]:
    """Start and end (s) of the part of a closed run in which every lane had a session; empty where there is none."""
    found = window(run.turns, run.info)
    return [] if found is None else _round(np.asarray([float(time.seconds(stamp)) for stamp in found]))


def cached_share(run: Measured) -> list[Series]:
    """TTFT against the share of the prompt that the server reported as cached."""
    turns = run.turns
    known = (turns.cached_tokens != ABSENT) & (turns.prompt_tokens > 0)
    return _scatter(run, turns.cached_tokens / np.maximum(turns.prompt_tokens, 1), known)


def idle_time(run: Measured) -> list[Series]:
    """TTFT against the time since the session's previous turn ended: how long its KV lay untouched."""
    turns = run.turns
    order = np.lexsort((turns.send_ns, turns.session))
    idle = np.full(len(turns), -1.0)
    same = turns.session[order][1:] == turns.session[order][:-1]
    gap = (turns.send_ns[order][1:] - turns.end_ns[order][:-1]) / 1e9 * run.scale
    idle[order[1:][same]] = gap[same]
    return _scatter(run, idle, idle > 0)


def _scatter(run: Measured, x: Any, known: Bools) -> list[Series]:
    """One series a class; of many turns the slowest and an even choice of the others."""
    ttft, has = figure(run.turns, metrics.TTFT, run.scale)
    rows = _chosen(np.flatnonzero(has & known), ttft)
    found = []
    for code, name in enumerate(CLASSES):
        mine = rows[run.turns.klass[rows] == code]
        if mine.size:
            found.append({"class": name, "x": _round(x[mine]), "y": _round(ttft[mine] / 1e6)})
    return found


def _chosen(rows: Any, ttft: Ints) -> Any:
    if rows.size <= POINTS:
        return rows
    slow = rows[np.argpartition(ttft[rows], -POINTS // 4)[-POINTS // 4 :]]
    return np.union1d(slow, rows[:: -(-rows.size * 4 // (POINTS * 3))])


LANES = 40
BARS = 3000


def lanes(run: Measured, time: Timeline) -> dict[str, Any]:
    """Sessions as lanes: of each turn its lane, class, sending, first token and end (s). Failed turns have no first token (null).

    Of many sessions an even choice is shown, of many turns the earliest.
    """
    turns: Turns = run.turns
    count = len(turns.sessions)
    begin = np.full(count, np.iinfo(np.int64).max)
    np.minimum.at(begin, turns.session, turns.send_ns)
    by_start = np.argsort(begin, kind="stable")
    picked = by_start[np.unique(np.linspace(0, count - 1, min(count, LANES)).astype(int))]
    lane = np.full(count, -1)
    lane[picked] = np.arange(picked.size)
    rows = np.flatnonzero(lane[turns.session] >= 0)
    rows = rows[np.argsort(turns.send_ns[rows], kind="stable")][:BARS]
    first = time.seconds(turns.first_token_ns[rows])
    started = turns.first_token_ns[rows] != ABSENT
    return {
        "names": [turns.sessions[k][:40] for k in picked],
        "sessions": count,
        "lane": lane[turns.session[rows]].tolist(),
        "class": turns.klass[rows].tolist(),
        "send": _round(time.seconds(turns.send_ns[rows])),
        "first": [value if ok else None for value, ok in zip(_round(first), started.tolist(), strict=True)],
        "end": _round(time.seconds(turns.end_ns[rows])),
        "whole": bool(rows.size == len(turns)),
    }


def _round(values: Any) -> list[float]:
    """Five significant digits are more than a pixel, and keep the page small."""
    return [float(f"{value:.5g}") for value in values.tolist()]
