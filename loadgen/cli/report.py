"""`loadgen report RUN…`: rebuild the summary and the report from the samples, and print the table."""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from loadgen.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run",
        type=Path,
        nargs="*",
        metavar="RUN",
        help="run folder or folder of runs; several are put side by side",
    )
    parser.add_argument(
        "--server-log",
        type=Path,
        action="append",
        default=[],
        metavar="FILE",
        help="log of vLLM with LMCache: fills the tiers of turns without a source, joined by request id",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print the summaries as JSON instead of the table")
    form.add_argument("--markdown", action="store_true", help="print Markdown instead of the table")
    form.add_argument(
        "--schema", choices=["sample", "summary"], help="print the JSON Schema of a sample or of summary.json"
    )


def run(args: argparse.Namespace) -> int:
    if args.schema:
        from loadgen.report.schema import shipped

        print(shipped(args.schema), end="")
        return 0
    if not args.run:
        raise InputError("name a run folder: loadgen report RUN")

    from rich.console import Console

    from loadgen.report import markdown
    from loadgen.report.server_log import read_logs, source_from_log
    from loadgen.report.sides import run_folders
    from loadgen.report.summary import summary_of
    from loadgen.report.table import print_table, shown
    from loadgen.report.why import lines, why
    from loadgen.report.write import REPORT_FILE, write_run

    folders = [folder for argument in args.run for folder in run_folders(argument)]
    if args.server_log:
        lookups = read_logs(args.server_log)
        said = Console(stderr=True, highlight=False)
        for folder in folders:
            coverage = source_from_log(folder, lookups)
            said.print(f"{folder.name}: {coverage}", markup=False, soft_wrap=True)
    measured = [write_run(folder) for folder in folders]
    if args.json:
        summaries = [summary_of(one) for one in measured]
        print(json.dumps(summaries[0] if len(summaries) == 1 else summaries))
    elif args.markdown:
        print(markdown.runs(measured), end="")
    else:
        console = Console()
        print_table(measured, console)
        for line in lines(why(measured)):
            console.print(shown(line), highlight=False)
        for folder in folders:
            console.print(
                f"{folder / REPORT_FILE}", style="dim", highlight=False, soft_wrap=True, markup=False
            )
    return 0
