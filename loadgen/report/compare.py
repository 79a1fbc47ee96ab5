"""Two or more sides, run against run, by the rules of `statistics`: one primary endpoint decides, the rest describes.

"No difference shown" is an answer; it comes with the smallest change that these runs could have found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from loadgen.measure.probes.fingerprint import differences as server_differences
from loadgen.report import words
from loadgen.report.marks import simulated
from loadgen.report.sides import Side
from loadgen.report.slo import TOLERANCE
from loadgen.report.statistics import (
    BOOTSTRAP_FROM,
    EQUALITY_MARGIN,
    MIN_RUNS,
    Difference,
    Noise,
    bootstrap_interval,
    decidable,
    difference,
    equal_within,
    holm,
    is_larger,
    is_smaller,
    noise_floor,
    runs_needed,
    smallest_effect,
)
from loadgen.report.validity import Reason

HOLM_ALPHA = 0.05
Outcome = Literal["slower", "faster", "no difference shown", "inconclusive", "invalid"]

GROUP_NAMES = {"all": "all turns", "first": "first turns", "reuse": "reuse turns", "rebuilt": "rebuilt turns"}
# figures that are described beside the primary endpoint: (label, path in the summary, whether more is better)
_FIGURES: tuple[tuple[str, tuple[str, ...], bool], ...] = (
    ("TTFT mean, all turns", ("groups", "all", "ttft_s", "mean"), False),
    ("TTFT mean, first turns", ("groups", "first", "ttft_s", "mean"), False),
    ("TTFT mean, reuse turns", ("groups", "reuse", "ttft_s", "mean"), False),
    ("E2E mean, all turns", ("groups", "all", "e2e_s", "mean"), False),
    ("TPOT mean, all turns", ("groups", "all", "tpot_s", "mean"), False),
    ("longest chunk gap, mean", ("groups", "all", "chunk_gap_s", "mean"), False),
    ("total time", ("total_s",), False),
    ("output tokens/s", ("rate", "output_tokens_s"), True),
)


@dataclass(frozen=True)
class Finding:
    """One figure on two sides: run-level values, their difference, and what may be said about it."""

    label: str
    unit: Literal["s", "1/s"]
    baseline: list[float]
    candidate: list[float]
    difference: Difference
    bootstrap: tuple[float, float] | None = None
    p_holm: float | None = None

    @property
    def interval(self) -> tuple[float, float] | None:
        if self.bootstrap is not None:
            return self.bootstrap
        low, high = self.difference.low, self.difference.high
        return None if low is None or high is None else (low, high)


@dataclass(frozen=True)
class Comparison:
    """A candidate side against the baseline side. `sentence` says the outcome with its numbers."""

    baseline: str
    candidate: str
    outcome: Outcome
    sentence: str
    tolerance: float
    primary: Finding | None
    others: list[Finding]
    smallest: float | None  # ratio - 1 that would have been found with 90 % probability
    noise: Noise | None
    tpot: str  # whether TPOT is equal, in words; empty where that is no invariant
    reasons: list[Reason]
    servers: list[str]  # in what the servers differ, as far as they tell
    mark: str  # that the runs are simulated, if any is


def compare(
    baseline: Side,
    candidate: Side,
    *,
    tolerance: float = TOLERANCE,
    group: str = "reuse",
    history: Sequence[Side] = (),
) -> Comparison:
    """Compare two sides. `history` are further sides of equal runs each, which only add to the noise floor."""
    path = ("groups", group, "ttft_s", "mean")
    label = f"TTFT mean, {GROUP_NAMES[group]}"
    noise = noise_floor([found for side in (baseline, candidate, *history) if (found := side.values(*path))])
    primary = _finding(label, path, False, baseline, candidate, noise)
    described = (_finding(*figure, baseline, candidate, None) for figure in _FIGURES if figure[1] != path)
    others = _with_holm([finding for finding in described if finding is not None])
    reasons = [*baseline.reasons, *candidate.reasons]
    outcome, sentence = _judge(primary, label, baseline.label, candidate.label, tolerance, noise, reasons)
    smallest = None
    if primary is not None and primary.difference.se is not None and primary.difference.df is not None:
        smallest = smallest_effect(primary.difference.se, primary.difference.df, tolerance)
    return Comparison(
        baseline=baseline.label,
        candidate=candidate.label,
        outcome=outcome,
        sentence=sentence,
        tolerance=tolerance,
        primary=primary,
        others=others,
        smallest=smallest,
        noise=noise,
        tpot=_tpot(others, baseline, candidate),
        reasons=reasons,
        servers=[
            f"{found.field}: {found.left} against {found.right} ({found.meaning})"
            for found in server_differences(
                *(side.infos[0].endpoint.server for side in (baseline, candidate))
            )
        ],
        mark=simulated([*baseline.infos, *candidate.infos]),
    )


def _finding(
    label: str, path: tuple[str, ...], more: bool, a: Side, b: Side, stored: Noise | None
) -> Finding | None:
    left, right = a.values(*path), b.values(*path)
    if left is None or right is None:
        return None
    found = difference(left, right, stored)
    interval = bootstrap_interval(left, right) if min(found.runs) >= BOOTSTRAP_FROM else None
    return Finding(label, "1/s" if more else "s", left, right, found, interval)


def _with_holm(findings: list[Finding]) -> list[Finding]:
    tested = [finding for finding in findings if finding.difference.p is not None]
    adjusted = holm([finding.difference.p or 0.0 for finding in tested])
    by_label = {finding.label: p for finding, p in zip(tested, adjusted, strict=True)}
    return [
        Finding(f.label, f.unit, f.baseline, f.candidate, f.difference, f.bootstrap, by_label.get(f.label))
        for f in findings
    ]


def _judge(
    primary: Finding | None,
    label: str,
    a: str,
    b: str,
    tolerance: float,
    noise: Noise | None,
    reasons: Sequence[Reason],
) -> tuple[Outcome, str]:
    if reasons:
        return "invalid", f"The runs may not be compared: {reasons[0]}"
    if primary is None:
        return (
            "inconclusive",
            f"{label}: a run lacks it (no such turns, or some that never had a first token).",
        )
    found = primary.difference
    change = f"{label}: {b} {describe_ratio(found.ratio)} {a}"
    if not decidable(found):
        return (
            "inconclusive",
            f"{change}. This describes the runs and proves nothing: {found.runs[0]} against {found.runs[1]}, "
            f"where it takes {MIN_RUNS} a side, or a stored variance.",
        )
    interval = primary.interval
    assert interval is not None
    shown = f"{change} (95 % interval of the ratio {interval[0]:.3f} to {interval[1]:.3f})"
    limit = f"more than the tolerance of {words.share(tolerance)}"
    if is_larger(found, tolerance):
        least = words.share((found.at_least or 1) - 1)
        return "slower", f"{shown}: it takes at least {least} longer (p {_p(found.p_larger)}), {limit}."
    if is_smaller(found, tolerance):
        least = words.factor(1 / (found.at_most or 1))
        return "faster", f"{shown}: it is at least {least} as fast (p {_p(found.p_smaller)}), {limit}."
    assert found.se is not None
    assert found.df is not None
    smallest = smallest_effect(found.se, found.df, tolerance)
    smaller = (tolerance + smallest) / 2
    needed = runs_needed(noise.sd, smaller, tolerance) if noise is not None else None
    return (
        "no difference shown",
        f"{shown}: no difference of {limit} is shown. These runs would have found one of {words.share(smallest)} "
        f"nine times in ten{f'; {needed} runs a side would find {words.share(smaller)}' if needed else ''}.",
    )


def _tpot(others: Sequence[Finding], a: Side, b: Side) -> str:
    """TPOT equality is an invariant only when one turn is in flight at a time."""
    alone = all(
        int(info.schedule.get("width", 0)) == 1 and info.schedule.get("kind") == "sweep"
        for side in (a, b)
        for info in side.infos
    )
    finding = next((one for one in others if one.label.startswith("TPOT")), None)
    if not alone or finding is None:
        return ""
    equal = equal_within(finding.difference)
    if equal is None:
        return f"TPOT: {b.label} {describe_ratio(finding.difference.ratio)} {a.label}; with one run a side equality cannot be tested."
    return f"TPOT is {'equal' if equal else 'not shown to be equal'} within {words.share(EQUALITY_MARGIN)} (two one-sided tests)."


def describe_ratio(ratio: float) -> str:
    """`is 3.32× as fast as`, `takes 1.15× as long as` or `takes as long as`, from the ratio of two times."""
    if math.isclose(ratio, 1, rel_tol=5e-4):
        return "takes as long as"
    return (
        f"takes {words.factor(ratio)} as long as" if ratio > 1 else f"is {words.factor(1 / ratio)} as fast as"
    )


def _p(p: float | None) -> str:
    return "–" if p is None else "< 0.0001" if p < 1e-4 else f"= {p:.2g}"


def as_json(comparison: Comparison) -> dict[str, Any]:
    """For machines: everything in the comparison, infinite numbers as null."""
    import msgspec

    return dict(msgspec.to_builtins(comparison))
