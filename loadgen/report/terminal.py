"""The terminal form of comparisons and verdicts."""

from __future__ import annotations

from rich import box
from rich.console import Console
from rich.table import Table

from loadgen.report import words
from loadgen.report.compare import Comparison
from loadgen.report.gate import VALID, Verdict
from loadgen.report.markdown import finding_cells
from loadgen.report.table import shown

_STYLE = {
    "pass": "green", "faster": "green", "no difference shown": "bold",
    "fail": "red", "slower": "red", "invalid": "red", "inconclusive": "yellow",
}  # fmt: skip


def print_comparison(found: Comparison, console: Console) -> None:
    """The figures of both sides with ratios and intervals, then the outcome in a sentence."""
    if found.mark:
        console.print(f"[bold yellow]{shown(found.mark)}[/bold yellow]")
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in ("", found.baseline, found.candidate, "ratio", "95 % interval", "p"):
        table.add_column(shown(column), justify="left" if not column else "right")
    if found.primary:
        table.add_row(f"[bold]{found.primary.label}[/bold]", *finding_cells(found.primary))
        table.add_section()
    for finding in found.others:
        table.add_row(finding.label, *finding_cells(finding))
    console.print(table)
    if found.noise:
        console.print(
            f"run-to-run noise {words.share(found.noise.sd)} (at most {words.share(found.noise.upper)}, {found.noise.df} degrees of freedom)",
            style="dim",
        )
    if found.tpot:
        console.print(shown(found.tpot), style="dim")
    for difference in found.servers:
        console.print(f"servers differ in {shown(difference)}", style="dim")
    style = _STYLE[found.outcome]
    console.print(f"[{style}]{found.outcome.upper()}[/{style}] {shown(found.sentence)}")
    for one in found.reasons:
        console.print(f"  [red]{shown(one.code)}[/red] {shown(str(one))} [dim]{shown(one.remedy)}[/dim]")


def print_verdict(verdict: Verdict, console: Console) -> None:
    """A line a check, then the verdict."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    for column in ("result", "check", "why"):
        table.add_column(column)
    several = len({check.run for check in verdict.checks if check.run}) > 1
    valid = [check for check in verdict.checks if check.name == VALID and check.outcome == "pass"]
    if len(valid) > 1:
        table.add_row("[green]pass[/green]", f"{len(valid)} valid runs", valid[0].sentence)
    for check in verdict.checks:
        if len(valid) > 1 and check in valid:
            continue
        style = _STYLE[check.outcome]
        name = f"{check.run}: {check.name}" if several and check.run else check.name
        table.add_row(f"[{style}]{check.outcome}[/{style}]", shown(name), shown(check.sentence))
    console.print(table)
    style = _STYLE[verdict.outcome]
    console.print(f"[{style} bold]{verdict.headline}[/{style} bold]")
