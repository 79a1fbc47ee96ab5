"""An experiment for people (one table, one verdict) and for machines (one dictionary)."""

from __future__ import annotations

import dataclasses
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadgen.experiment.held import sentences
from loadgen.experiment.residency import hbm_shares
from loadgen.experiment.spec import Experiment
from loadgen.experiment.verdict import Judged, Verdict
from loadgen.report import words
from loadgen.report.sides import Side
from loadgen.report.statistics import noise_floor, runs_needed, smallest_effect

_FIGURES = {
    "first_ttft_s": ("groups", "first", "ttft_s", "mean"),
    "reuse_ttft_s": ("groups", "reuse", "ttft_s", "mean"),
    "total_s": ("total_s",),
}


def plan_lines(experiment: Experiment) -> list[str]:
    """What will run, and what it could find: printed before anything starts."""
    spec = experiment.spec
    runs = len(experiment.cells) * len(spec.arms) * spec.runs
    lines = [
        f"{spec.name}: {len(spec.arms)} arms ({', '.join(arm.name for arm in spec.arms)}), {spec.runs} runs each, "
        f"{len(experiment.cells)} cells: {runs} runs"
    ]
    effect = smallest_effect(spec.expected_sd * (2 / spec.runs) ** 0.5, 2 * spec.runs - 2, spec.tolerance)
    line = (
        f"power: at a run-to-run SD of {spec.expected_sd:.1%} and a tolerance of {spec.tolerance:.0%}, a change of "
        f"{effect:.1%} is found nine times in ten"
    )
    if spec.runs < 5:
        line += "; below 5 runs an arm it needs a variance pooled over 8 degrees of freedom, from other cells or --history"
    needed = (
        runs_needed(spec.expected_sd, effect / 2, spec.tolerance) if effect / 2 > spec.tolerance else None
    )
    if needed:
        line += f"; one of {effect / 2:.1%} needs {needed} runs an arm"
    return [*lines, line]


def figures(side: Side) -> dict[str, float | None]:
    """Means over the runs of a side: seconds, and the share of the expected reuse that was cached."""
    found: dict[str, float | None] = {}
    for name, path in _FIGURES.items():
        values = side.values(*path)
        found[name] = sum(values) / len(values) if values else None
    cached, expected = (
        side.values("groups", "reuse", "cached_tokens"),
        side.values("groups", "reuse", "expected_reuse"),
    )
    nothing = all(s["groups"]["reuse"]["cached_tokens"] == 0 for s in side.summaries)
    found["cached_share"] = 0.0 if nothing else sum(cached) / sum(expected) if cached and expected else None
    capacity = side.infos[0].endpoint.server.get("capacity_tokens")
    found["hbm_share"], found["hbm_predicted"] = hbm_shares(side, capacity)
    noise = noise_floor([values]) if (values := side.values(*_FIGURES["reuse_ttft_s"])) else None
    found["noise_sd"] = noise.sd if noise else None
    return found


def table(cells: list[Judged]) -> Table:
    """One line an arm, below its cell where there are several; speed-ups are of the mean TTFT of reuse turns, against the first arm."""
    shown = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    several = len(cells) > 1
    columns = [
        "arm × runs",
        "first",
        "reuse",
        "cached",
        *(["HBM (pool)"] if several else []),
        "total",
        "speed-up",
    ]
    for column in columns:
        shown.add_column(column, justify="right" if shown.columns else "left", no_wrap=True)
    for judged in cells:
        if several:
            shown.add_row(f"[bold]{escape(_name(judged))}[/bold]")
        for place, side in enumerate(judged.sides):
            mean = figures(side)
            ratio = judged.comparisons[place - 1].primary if place else None
            shown.add_row(
                ("  " if several else "") + escape(f"{side.label} × {len(side.folders)}"),
                words.seconds(mean["first_ttft_s"]),
                words.seconds(mean["reuse_ttft_s"]),
                _share(mean["cached_share"]),
                *([f"{_share(mean['hbm_share'])} ({_share(mean['hbm_predicted'])})"] if several else []),
                words.seconds(mean["total_s"]),
                "" if not place else words.factor(1 / ratio.difference.ratio) if ratio else words.DASH,
            )
    return shown


def _outcomes(cells: list[Judged]) -> list[str]:
    """A line a comparison: outcome, speed-up and its 95 % interval."""
    lines = []
    for judged in cells:
        for comparison in judged.comparisons:
            finding = comparison.primary
            line = f"{_name(judged)}: " if len(cells) > 1 else ""
            line += f"{comparison.candidate} against {comparison.baseline}: {comparison.outcome}"
            if finding is not None and finding.interval is not None:
                low, high = finding.interval
                line += f", speed-up {words.factor(1 / finding.difference.ratio)} (95 %: {words.number(1 / high)} to {words.number(1 / low)})"
            lines.append(line)
    return lines


def _name(judged: Judged) -> str:
    return judged.cell or "main"


def _share(value: float | None) -> str:
    return words.DASH if value is None else f"{value:.0%}"


def _noise(cells: list[Judged]) -> str:
    """Each arm's own run-to-run SD of the mean TTFT of reuse turns, pooled over its cells."""
    by_arm: dict[str, list[list[float]]] = {}
    for judged in cells:
        for side in judged.sides:
            if values := side.values(*_FIGURES["reuse_ttft_s"]):
                by_arm.setdefault(side.label, []).append(values)
    found = {arm: noise_floor(groups) for arm, groups in by_arm.items()}
    return ", ".join(f"{arm} {n.sd:.1%} (at most {n.upper:.1%})" for arm, n in found.items() if n is not None)


def print_verdict(experiment: Experiment, verdict: Verdict, console: Console) -> None:
    if verdict.cells:
        console.print(
            "TTFT: means of first and reuse turns. cached, HBM: shares of the expected reuse; (pool): what a round robin over a pool of this size leaves",
            style="dim",
        )
        console.print(table(verdict.cells))
        for line in _outcomes(verdict.cells):
            console.print(escape(line))
        for line in sentences(experiment, verdict.held):
            console.print(escape(line))
        if noise := _noise(verdict.cells):
            console.print(f"noise floor, run to run: {escape(noise)}", style="dim")
        for covariate in verdict.covariates:
            console.print(escape(covariate.sentence), style="dim")
    simulated = sorted(
        {
            info.endpoint.simulated or ""
            for judged in verdict.cells
            for side in judged.sides
            for info in side.infos
        }
        - {""}
    )
    if simulated:
        console.print(
            f"SIMULATED ({escape(', '.join(simulated))}): the profile's numbers, not evidence.",
            style="yellow",
        )
    for control in verdict.controls:
        style = {"passed": "green", "failed": "red"}.get(control.passed, "yellow")
        console.print(
            f"control, {escape(control.name)}: [{style}]{control.passed}[/{style}]. {escape(control.sentence)}"
        )
    for one in verdict.reasons:
        console.print(f"[red]{escape(one.code)}[/red] {escape(str(one))} [dim]{escape(one.remedy)}[/dim]")
    console.print(f"[bold]{escape(verdict.sentence)}[/bold]")


def as_json(experiment: Experiment, verdict: Verdict) -> dict[str, Any]:
    from loadgen.report.compare import as_json as comparison

    return {
        "name": experiment.spec.name,
        "primary": experiment.primary,
        "sentence": verdict.sentence,
        "exit_code": verdict.exit_code,
        "missing_runs": verdict.missing,
        "held": [dataclasses.asdict(one) | {"per_gpu": one.per_gpu} for one in verdict.held],
        "covariates": [dataclasses.asdict(one) for one in verdict.covariates],
        "reasons": [str(one) for one in verdict.reasons],
        "controls": [{"name": c.name, "passed": c.passed, "sentence": c.sentence} for c in verdict.controls],
        "cells": [
            {
                "cell": judged.cell,
                "kind": judged.kind,
                "arms": {side.label: {"runs": len(side.folders), **figures(side)} for side in judged.sides},
                "comparisons": [comparison(one) for one in judged.comparisons],
            }
            for judged in verdict.cells
        ],
    }
