"""The one sentence at the top, from summaries: what happened, in the reader's units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadgen.report import words
from loadgen.report.rows import speedup

Summary = dict[str, Any]


def headline(summaries: Sequence[Summary], *, comparable: bool = True) -> str:
    """For one run its TTFTs; for several, the last against the first, unless they did different work."""
    invalid = [s["arm"] for s in summaries if not s["valid"]]
    if len(summaries) == 1:
        return f"Invalid: {_lower(_single(summaries[0]))}" if invalid else _single(summaries[0])
    if not comparable:
        return f"Not comparable: {' and '.join(s['arm'] for s in summaries)} did not do the same work"
    found = _pair(summaries[0], summaries[-1])
    return f"Invalid ({', '.join(invalid)}): {found}" if invalid else found


def _lower(text: str) -> str:
    return text[:1].lower() + text[1:]


def typical(summary: Summary, group: str) -> tuple[str, float | None]:
    """("mean" or "p50", value): the mean, or the median where a turn that never had a first token leaves no mean."""
    found = summary["groups"][group]["ttft_s"]
    return ("mean", found["mean"]) if found["mean"] is not None else ("p50", found["p50"])


def tail(summary: Summary, group: str) -> tuple[str, float | None]:
    """(name, value) of the highest percentile that the sample supports and that is no censored turn; else the maximum."""
    found = summary["groups"][group]
    for name in ("p99", "p95", "p90"):
        if found["ttft_s"][name] is not None:
            return name, found["ttft_s"][name]
    return ("max", None) if found["censored"] else ("max", found["ttft_s"]["max"])


def _single(summary: Summary) -> str:
    parts: list[str] = []
    for group in ("reuse", "first", "rebuilt"):
        name, value = typical(summary, group)
        if value is None:
            continue
        far, limit = tail(summary, group)
        more = f", {far} {words.seconds(limit)}" if group == "reuse" and limit is not None else ""
        parts.append(
            f"{words.seconds(value)} on {group} turns ({name}{more})"
            if not parts
            else f"{words.seconds(value)} on {group} turns"
        )
    if not parts:
        return "No time to first token to speak of: too many turns failed before one came"
    return f"First token after {', '.join(parts)}"


def _pair(before: Summary, after: Summary) -> str:
    group = "reuse" if before["groups"]["reuse"]["turns"] and after["groups"]["reuse"]["turns"] else "all"
    what = "reuse turns" if group == "reuse" else "turns"
    means = _both(before, after, group, "mean")
    if means is None:
        return _percentiles(before, after, group, what)
    main = f"{after['arm']}: first token {_faster(*means)} on {what} ({words.seconds(means[0])} → {words.seconds(means[1])})"
    first = _both(before, after, "first", "mean")
    if group == "reuse" and first is not None and abs(first[1] - first[0]) > 0.02 * first[0]:
        main += f", first turns {words.seconds(abs(first[1] - first[0]))} {'later' if first[1] > first[0] else 'sooner'}"
    total = speedup(before["total_s"], after["total_s"])
    return main if total is None else f"{main}; the whole job {_faster(before['total_s'], after['total_s'])}"


def _percentiles(before: Summary, after: Summary, group: str, what: str) -> str:
    """Without means (a turn had no first token): two points of the distribution, since one median could mislead."""
    parts: list[str] = []
    for name in ("p50", "p99", "p95", "p90"):
        pair = _both(before, after, group, name)
        if pair is not None and len(parts) < 2:
            parts.append(f"{name} {words.seconds(pair[0])} → {words.seconds(pair[1])}")
    if not parts:
        return f"{after['arm']} against {before['arm']}: no TTFT to compare on both sides"
    return f"{after['arm']}: first token on {what} {', '.join(parts)}"


def _both(before: Summary, after: Summary, group: str, name: str) -> tuple[float, float] | None:
    """The same statistic of both; None where one lacks it."""
    a, b = (summary["groups"][group]["ttft_s"][name] for summary in (before, after))
    return None if a is None or b is None else (a, b)


def _faster(before: float, after: float) -> str:
    ratio = before / after
    if abs(ratio - 1) < 0.005:
        return "as fast"
    return f"{words.factor(ratio)} faster" if ratio > 1 else f"{words.factor(1 / ratio)} slower"
