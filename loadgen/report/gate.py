"""Gates: rules over runs, and a baseline, that end in pass, fail, invalid or inconclusive.

An SLO on a share of turns passes when the upper 95 % bound of the share over the limit is within the allowance, fails
when the lower bound is beyond it, and is inconclusive in between: a run with too few turns is never green.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from loadgen.errors import EXIT_INCONCLUSIVE, EXIT_INVALID, EXIT_OK, EXIT_REGRESSION
from loadgen.measure import metrics
from loadgen.report import words
from loadgen.report.columns import Bools
from loadgen.report.compare import GROUP_NAMES, Comparison, compare
from loadgen.report.figures import figure, needed
from loadgen.report.sides import one_arm, read_sides, run_folders
from loadgen.report.slo import TIMES, Regression, Rule, Slo
from loadgen.report.statistics import exceedance
from loadgen.report.summary import Measured, measure, member, summary_of
from loadgen.report.validity import Reason

Outcome = Literal["pass", "fail", "inconclusive", "invalid"]
_EXIT: dict[Outcome, int] = {
    "pass": EXIT_OK,
    "fail": EXIT_REGRESSION,
    "inconclusive": EXIT_INCONCLUSIVE,
    "invalid": EXIT_INVALID,
}
VALID = "valid run"
_WORST: tuple[Outcome, ...] = ("invalid", "fail", "inconclusive", "pass")
_METRIC = {"ttft": metrics.TTFT, "ttft_intended": metrics.TTFT_INTENDED, "tpot": metrics.TPOT, "chunk_gap": metrics.CHUNK_GAP,
           "e2e": metrics.E2E, "upload": metrics.UPLOAD}  # fmt: skip


@dataclass(frozen=True)
class Check:
    """One rule applied: its name, how it ended, and why in one sentence with the numbers."""

    name: str
    outcome: Outcome
    sentence: str
    run: str = ""


@dataclass(frozen=True)
class Verdict:
    """All checks. Invalid beats fail beats inconclusive beats pass."""

    checks: list[Check]
    comparison: Comparison | None = None

    @property
    def outcome(self) -> Outcome:
        found = {check.outcome for check in self.checks}
        return next((outcome for outcome in _WORST if outcome in found), "pass")

    @property
    def exit_code(self) -> int:
        return _EXIT[self.outcome]

    @property
    def headline(self) -> str:
        counts = {outcome: sum(check.outcome == outcome for check in self.checks) for outcome in _WORST}
        return f"{self.outcome.upper()}: " + ", ".join(
            f"{number} {outcome}" for outcome, number in counts.items() if number
        )


def gate(
    runs: Sequence[Path],
    slo: Slo | None = None,
    baseline: Sequence[Path] = (),
    history: Sequence[Path] = (),
) -> Verdict:
    """Apply the rules to each run (run folders or folders of runs), and compare all of them with the baseline's.

    `history` holds folders of equal runs (one folder a build), which tell the run-to-run noise. Raises InputError for
    what is no run. Without rules and baseline, validity alone is checked.
    """
    slo = slo or Slo()
    folders = [folder for argument in runs for folder in run_folders(argument)]
    checks: list[Check] = []
    for folder in folders:
        run = measure(folder)
        checks.extend(_validity(folder.name, run.reasons))
        checks.extend(apply(rule, run) for rule in slo.slo)
    if not baseline:
        return Verdict(checks)
    sides = read_sides([("baseline", [f for a in baseline for f in run_folders(a)]), ("candidate", folders)])
    for side in sides:
        one_arm(side)
    earlier = read_sides([(str(a), run_folders(a)) for a in history])
    found = compare(*sides, tolerance=slo.regression.tolerance, group=slo.regression.group, history=earlier)
    return Verdict([*checks, regression(found, slo.regression)], found)


def _validity(run: str, reasons: Sequence[Reason]) -> list[Check]:
    if not reasons:
        return [Check(VALID, "pass", "No reason to doubt the measurement was found.", run)]
    return [Check(f"{VALID}: {one.code}", "invalid", f"{one} {one.remedy}", run) for one in reasons]


def regression(found: Comparison, rule: Regression) -> Check:
    """The check behind `--baseline`: green only when the runs would have found `must_find`."""
    name = f"no regression: TTFT mean, {GROUP_NAMES[rule.group]}"
    if found.outcome == "invalid":
        return Check(name, "invalid", found.sentence)
    if found.outcome == "inconclusive":
        return Check(name, "inconclusive", found.sentence)
    if found.outcome == "slower":
        return Check(name, "fail", found.sentence)
    if found.outcome == "no difference shown" and (found.smallest or 0.0) > rule.must_find:
        blind = f"A green answer needs runs that would have found {words.share(rule.must_find)} (must_find): run more."
        return Check(name, "inconclusive", f"{found.sentence} {blind}")
    return Check(name, "pass", found.sentence)


def apply(rule: Rule, run: Measured) -> Check:
    """One SLO on one run."""
    if rule.metric in TIMES or rule.metric == "goodput":
        return _share(rule, run)
    return _figure(rule, run)


def _share(rule: Rule, run: Measured) -> Check:
    inside = member(run.turns, rule.group)
    if rule.metric == "goodput":
        assert rule.min_share is not None
        limits = [
            (name, limit)
            for name, limit in ((metrics.TTFT, rule.ttft_s), (metrics.TPOT, rule.tpot_s))
            if limit is not None
        ]
        allowed = 1 - rule.min_share
        name = (
            f"goodput, {GROUP_NAMES[rule.group]}: {words.share(rule.min_share)} of turns within "
            + " and ".join(
                f"{label} {words.seconds(limit)}"
                for label, limit in (("TTFT", rule.ttft_s), ("TPOT", rule.tpot_s))
                if limit is not None
            )
        )
    else:
        assert rule.percentile is not None
        assert rule.max_s is not None
        limits = [(_METRIC[rule.metric], rule.max_s)]
        allowed = 1 - rule.percentile / 100
        name = f"{rule.metric.upper().replace('_', ' ')} p{rule.percentile:g}, {GROUP_NAMES[rule.group]} ≤ {words.seconds(rule.max_s)}"
    over, counted, log_time = _over(run, inside, limits)
    chosen = np.flatnonzero(inside & counted)
    found = exceedance(over[chosen], run.turns.session[chosen], log_time[chosen], float(np.log(limits[0][1])))
    turns = f"{found.over} of {found.turns} turns in {found.clusters} sessions are over"
    if not found.turns:
        return Check(name, "inconclusive", "The run has no such turns.", run.folder.name)
    bounds = f"{turns}: a share of {words.share(found.low)} to {words.share(found.high)} (one-sided 95 % bounds), {words.share(allowed)} is allowed"
    if found.high <= allowed:
        return Check(name, "pass", f"{bounds}.", run.folder.name)
    if found.low > allowed:
        return Check(name, "fail", f"{bounds}.", run.folder.name)
    need = f"Passing with none over takes {needed(1 - allowed)} independent turns; these count as {found.effective:.0f}."
    return Check(name, "inconclusive", f"{bounds}. {need}", run.folder.name)


def _over(run: Measured, inside: Bools, limits: Sequence[tuple[str, float]]) -> tuple[Bools, Bools, Any]:
    """(over any limit [N], counted [N], log of the first metric's seconds [N]). Failed turns are over every limit."""
    turns = run.turns
    over = np.asarray(~turns.ok)
    counted = np.asarray(~turns.ok)
    log_time = np.zeros(len(turns))
    for position, (metric, limit_s) in enumerate(limits):
        us, has = figure(turns, metric, run.scale)
        over = over | (has & (us > limit_s * 1e6))
        counted = counted | has
        if position == 0:
            log_time = np.log(np.maximum(us, 1) / 1e6)
    return over, counted & inside, log_time


def _figure(rule: Rule, run: Measured) -> Check:
    summary = summary_of(run)
    group = summary["groups"][rule.group]
    value: float | None
    if rule.metric == "cached_share":
        cached, expected = group["cached_tokens"], group["expected_reuse"]
        value = cached / expected if cached is not None and expected else None
    elif rule.metric == "errors":
        value = float(group["errors"])
    elif rule.metric == "total_s":
        value = summary["total_s"]
    else:
        value = summary["rate"][rule.metric]
    low, high = rule.min, rule.max
    limits = " and ".join(
        [*([f"≥ {low:g}"] if low is not None else []), *([f"≤ {high:g}"] if high is not None else [])]
    )
    name = f"{rule.metric}, {GROUP_NAMES[rule.group]} {limits}"
    if value is None:
        return Check(name, "inconclusive", "The run does not tell this figure.", run.folder.name)
    kept = (low is None or value >= low) and (high is None or value <= high)
    return Check(name, "pass" if kept else "fail", f"It is {value:.4g}.", run.folder.name)
