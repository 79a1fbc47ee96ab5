"""What an experiment has shown: each cell's comparison, the controls, and one sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from loadgen.errors import EXIT_INCONCLUSIVE, EXIT_INVALID, EXIT_OK, EXIT_REGRESSION
from loadgen.experiment.drift import Covariate, Placed, covariates
from loadgen.experiment.held import Held, held
from loadgen.experiment.order import Step
from loadgen.experiment.spec import Experiment
from loadgen.experiment.state import Result, State
from loadgen.measure.probes.fingerprint import Difference, differences
from loadgen.report.compare import Comparison, compare, describe_ratio
from loadgen.report.sides import Side, read_sides
from loadgen.report.statistics import Noise, decidable, difference, is_larger, noise_floor
from loadgen.report.validity import Code, Reason, reason

NEGATIVE_LIMIT = 1.05  # upper 95 % bound of the speed-up that a tier may show where it cannot help
_TTFT = ("groups", "reuse", "ttft_s", "mean")
Passed = Literal["passed", "failed", "not testable"]


@dataclass(frozen=True)
class Control:
    name: str
    passed: Passed
    sentence: str


@dataclass
class Judged:
    """One cell: its sides (the first arm is the baseline) and each other arm against it."""

    cell: str
    kind: str
    sides: list[Side]
    comparisons: list[Comparison]


@dataclass
class Verdict:
    cells: list[Judged]
    controls: list[Control]
    reasons: list[Reason] = field(default_factory=list)
    missing: int = 0  # runs of the plan that never ended
    covariates: list[Covariate] = field(
        default_factory=list
    )  # whether place and predecessor of a run mattered
    held: list[Held] = field(
        default_factory=list
    )  # sessions of each arm within the limit, where one is named
    sentence: str = ""
    exit_code: int = EXIT_INCONCLUSIVE


def judge(experiment: Experiment, state: State, folder: Path, history: Sequence[Side] = ()) -> Verdict:
    """Judge the runs that there are. The primary cell decides; every other cell describes.

    Run-to-run noise is pooled over all cells (it is relative, and the arms are the same), and over `history`: equal runs of earlier days.
    """
    done = {step.index: result for step in state.plan if (result := state.done(step)) is not None}
    steps = [step for step in state.plan if step.index in done]
    sides: dict[str, list[Side]] = {}
    for cell in experiment.cells:
        grouped = [
            (
                arm.name,
                [folder / done[s.index].folder for s in steps if (s.cell, s.arm) == (cell.name, arm.name)],
            )
            for arm in experiment.spec.arms
        ]
        if all(folders for _, folders in grouped):
            sides[cell.name] = read_sides(grouped)
    cells = []
    for cell in experiment.cells:
        if (mine := sides.get(cell.name)) is None:
            continue
        others = [
            side for name, theirs in sides.items() if name != cell.name for side in theirs if not side.reasons
        ]
        compared = [
            compare(mine[0], side, tolerance=experiment.spec.tolerance, history=[*others, *history])
            for side in mine[1:]
        ]
        cells.append(Judged(cell.name, cell.kind, mine, compared))
    verdict = Verdict(cells, [], missing=len(state.plan) - len(done))
    verdict.reasons = unlike(experiment, state, list(done.values()))
    verdict.controls = _controls(experiment, cells)
    verdict.covariates = _covariates(steps, done, sides)
    verdict.held = held(experiment, sides)
    _conclude(verdict, experiment)
    return verdict


def _covariates(
    steps: Sequence[Step], done: Mapping[int, Result], sides: Mapping[str, list[Side]]
) -> list[Covariate]:
    """Over all cells and arms; runs of a side stand in the order of the plan."""
    placed: dict[tuple[str, str], list[Placed]] = {}
    for cell, judged in sides.items():
        for side in judged:
            mine = [step for step in steps if (step.cell, step.arm) == (cell, side.label)]
            if (means := side.values(*_TTFT)) is not None:
                placed[cell, side.label] = [
                    Placed(step.position, done[step.index].previous_arm, mean)
                    for step, mean in zip(mine, means, strict=True)
                ]
    return covariates(placed)


def unlike(experiment: Experiment, state: State, results: Sequence[Result]) -> list[Reason]:
    """Servers that differ where they should not: between arms beyond what the file names, and within an arm at all."""
    arms = {step.index: step.arm for step in state.plan}
    first: dict[str, Result] = {}
    found = []
    for result in results:
        arm = arms[result.index]
        known = first.setdefault(arm, result)
        changed = [d for d in differences(known.server, result.server) if "unknown" not in (d.left, d.right)]
        if changed:
            found.append(f"{arm} changed between {known.folder} and {result.folder}: {_listed(changed)}.")
    base = experiment.spec.arms[0].name
    for arm, result in first.items():
        if base in first and arm != base:
            differ = differences(first[base].server, result.server, experiment.spec.differ)
            if differ:
                found.append(
                    f"{base} and {arm} differ in {_listed(differ)}; what is meant belongs into `differ`."
                )
    return [reason(Code.ARMS_DIFFER, text) for text in found]


def _listed(found: Sequence[Difference]) -> str:
    return ", ".join(f"{d.field} ({d.left} against {d.right}: {d.meaning})" for d in found)


def _controls(experiment: Experiment, cells: Sequence[Judged]) -> list[Control]:
    found = []
    for judged in cells:
        if judged.kind == "negative":
            found += [_negative(one) for one in judged.comparisons]
    delay = experiment.spec.controls.positive
    primary = next((judged for judged in cells if judged.cell == experiment.primary), None)
    if delay is not None and primary is not None:
        noise = noise_floor([v for one in cells for side in one.sides if (v := side.values(*_TTFT))])
        found.append(_positive(primary, delay, experiment.spec.tolerance, noise))
    return found


def _negative(comparison: Comparison) -> Control:
    """The working set fits without the tier, so that the tier may not be seen to help."""
    name = f"negative: {comparison.candidate}"
    finding = comparison.primary
    if comparison.reasons or finding is None or finding.interval is None or not decidable(finding.difference):
        return Control(name, "not testable", comparison.sentence)
    most = 1 / finding.interval[0]
    sentence = (
        f"where everything fits, {comparison.candidate} {describe_ratio(finding.difference.ratio)} "
        f"{comparison.baseline}; speed-up at most {most:.3f} (95 %), allowed {NEGATIVE_LIMIT}"
    )
    return Control(name, "passed" if most <= NEGATIVE_LIMIT else "failed", sentence)


def _positive(judged: Judged, delay: float, tolerance: float, noise: Noise | None) -> Control:
    """The baseline's own runs against themselves, every second one slowed by `delay`: the rules must find it."""
    name = f"positive: {delay:.0%} of added delay"
    values = judged.sides[0].values(*_TTFT)
    if values is None or len(values) < 2:
        return Control(name, "not testable", "the baseline has too few runs with a mean TTFT of reuse turns")
    found = difference(values[0::2], [v * (1 + delay) for v in values[1::2]], noise)
    if not decidable(found):
        return Control(
            name, "not testable", f"{len(values)} runs of the baseline are too few to split in two"
        )
    if is_larger(found, tolerance):
        return Control(
            name, "passed", f"seeded into the baseline's own runs, it is found ({found.ratio:.3f})"
        )
    return Control(
        name, "failed", f"seeded into the baseline's own runs, it is not found ({found.ratio:.3f})"
    )


def _conclude(verdict: Verdict, experiment: Experiment) -> None:
    primary = next((judged for judged in verdict.cells if judged.cell == experiment.primary), None)
    failed = [control for control in verdict.controls if control.passed == "failed"]
    if primary is None:
        verdict.sentence = "No arm has a finished run in the primary cell yet."
    elif verdict.reasons:
        verdict.sentence, verdict.exit_code = f"Invalid: {verdict.reasons[0]}", EXIT_INVALID
    elif failed:
        verdict.sentence = f"Invalid: the control «{failed[0].name}» failed: {failed[0].sentence}."
        verdict.exit_code = EXIT_INVALID
    else:
        outcomes = [one.outcome for one in primary.comparisons]
        verdict.sentence = " ".join(one.sentence for one in primary.comparisons)
        if "invalid" in outcomes:
            verdict.exit_code = EXIT_INVALID
        elif verdict.missing or "inconclusive" in outcomes:
            verdict.exit_code = EXIT_INCONCLUSIVE
        else:
            verdict.exit_code = EXIT_REGRESSION if "slower" in outcomes else EXIT_OK
    if verdict.missing:
        verdict.sentence += f" {verdict.missing} runs of the plan are missing; --resume goes on."
