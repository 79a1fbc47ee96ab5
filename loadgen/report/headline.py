"""The one sentence at the top, from summaries: what happened, in the reader's units."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from loadgen.report import words
from loadgen.report.rows import speedup

Summary = dict[str, Any]


def headline(summaries: Sequence[Summary]) -> str:
    """For one run its TTFTs; for several, the last against the first. Means, since a mixed group's median hides one part."""
    if len(summaries) == 1:
        return _single(summaries[0])
    return _pair(summaries[0], summaries[-1])


def _ttft(summary: Summary, group: str) -> float | None:
    value: float | None = summary["groups"][group]["ttft_s"]["mean"]
    return value


def _single(summary: Summary) -> str:
    parts = [
        f"{words.seconds(_ttft(summary, group))} on {group} turns"
        for group in ("reuse", "rebuilt", "first")
        if _ttft(summary, group) is not None
    ]
    if not parts:
        return "No mean time to first token: turns failed before one came, or none was sent."
    return f"First token after {', '.join(parts)}"


def _pair(before: Summary, after: Summary) -> str:
    a, b = _ttft(before, "reuse"), _ttft(after, "reuse")
    if a is None or b is None:
        a, b, what = _ttft(before, "all"), _ttft(after, "all"), "turns"
    else:
        what = "reuse turns"
    if a is None or b is None:
        return f"{after['arm']} against {before['arm']}: no mean TTFT on both sides"
    main = f"{after['arm']}: first token {_faster(a, b)} on {what} ({words.seconds(a)} → {words.seconds(b)})"
    first_a, first_b = _ttft(before, "first"), _ttft(after, "first")
    if (
        what == "reuse turns"
        and first_a is not None
        and first_b is not None
        and abs(first_b - first_a) > 0.02 * first_a
    ):
        main += f", first turns {words.seconds(abs(first_b - first_a))} {'later' if first_b > first_a else 'sooner'}"
    total = speedup(before["total_s"], after["total_s"])
    return main if total is None else f"{main}; the whole job {_faster(before['total_s'], after['total_s'])}"


def _faster(before: float, after: float) -> str:
    ratio = before / after
    if abs(ratio - 1) < 0.005:
        return "as fast"
    return f"{words.factor(ratio)} faster" if ratio > 1 else f"{words.factor(1 / ratio)} slower"
