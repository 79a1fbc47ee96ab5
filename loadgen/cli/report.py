"""`loadgen report RUN…`: rebuild the summary and the report from the samples, and print the table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", type=Path, nargs="+", metavar="RUN", help="run folder; several are put side by side"
    )
    parser.add_argument(
        "--json", action="store_true", help="print the summaries as JSON instead of the table"
    )


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from loadgen.report.summary import summary_of
    from loadgen.report.table import print_table
    from loadgen.report.write import REPORT_FILE, write_run

    measured = [write_run(folder) for folder in args.run]
    if args.json:
        summaries = [summary_of(one) for one in measured]
        print(json.dumps(summaries[0] if len(summaries) == 1 else summaries))
        return 0
    console = Console()
    print_table(measured, console)
    for folder in args.run:
        console.print(f"{folder / REPORT_FILE}", style="dim", highlight=False, soft_wrap=True, markup=False)
    return 0
