"""The terminal form: one table, arms side by side."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from loadgen.report.marks import simulated
from loadgen.report.pairing import arms_differ
from loadgen.report.rows import rows
from loadgen.report.sides import average
from loadgen.report.summary import Measured, measure, summary_of
from loadgen.report.validity import Reason
from loadgen.report.words import printable


def shown(text: str) -> str:
    """Foreign text as it is: neither markup nor control characters have an effect."""
    return escape(printable(text))


def render_arms(run_dirs: Sequence[Path], console: Console) -> list[Reason]:
    """Measure the runs, print them side by side (the first is the base of the speed-ups) and what makes any of them invalid.

    Returns the reasons, those of the comparison (`arms_differ`) included.
    """
    return print_table([measure(folder) for folder in run_dirs], console)


def by_arm(runs: Sequence[Measured]) -> list[dict[str, Any]]:
    """A summary a run; where arms have several runs, one an arm with the means over them."""
    arms: dict[str, list[dict[str, Any]]] = {}
    for run in runs:
        arms.setdefault(run.info.arm, []).append(summary_of(run))
    if len(arms) in (1, len(runs)):
        return [summary for summaries in arms.values() for summary in summaries]
    return [average(summaries) | {"arm": f"{arm} ({len(summaries)} runs)"} for arm, summaries in arms.items()]


def print_table(runs: Sequence[Measured], console: Console) -> list[Reason]:
    """Print runs that are measured already; several of one arm as their mean. Speed-ups are withheld where work differs."""
    summaries = by_arm(runs)
    different = arms_differ(runs)
    table = Table(box=box.SIMPLE_HEAD, header_style="bold", pad_edge=False)
    table.add_column("")
    for summary in summaries:
        table.add_column(shown(summary["arm"]), justify="right")
    if len(summaries) > 1 and not different:
        for summary in summaries[1:]:
            table.add_column(
                "speed-up" if len(summaries) == 2 else f"speed-up {shown(summary['arm'])}", justify="right"
            )
    section = ""
    for row in rows(summaries):
        if row.section != section:
            section = row.section
            table.add_section()
        label = row.label if row.section in ("run", "rate", "turns") else f"{row.section}: {row.label}"
        cells = [f"[red]{shown(cell)}[/red]" if cell == "INVALID" else shown(cell) for cell in row.cells]
        table.add_row(label, *cells, *([] if different else row.speedups))
    if mark := simulated([run.info for run in runs]):
        console.print(f"[bold yellow]{shown(mark)}[/bold yellow]")
    console.print(table)
    found = list(different)
    for run in runs:
        if run.turns.truncated:
            console.print(
                f"{shown(run.info.run)}: {run.turns.truncated} half-written sample lines were left out",
                style="dim",
            )
        for one in run.reasons:
            console.print(
                f"[red]INVALID[/red] ({shown(run.info.arm)}): {shown(str(one))} [dim]{shown(one.remedy)}[/dim]"
            )
        found.extend(run.reasons)
    for one in different:
        console.print(f"[red]NOT COMPARABLE[/red]: {shown(str(one))} [dim]{shown(one.remedy)}[/dim]")
    return found
