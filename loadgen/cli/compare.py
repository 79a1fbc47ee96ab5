"""`loadgen compare A B [C…]`: runs or folders of runs against each other, by the rules of docs/statistics.md.

Exit code 3 when a side is invalid or they did different work, 4 when the comparison is inconclusive, else 0: `loadgen gate`
is what fails on a slower side."""

from __future__ import annotations

import argparse
import json
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "runs",
        type=Path,
        nargs="+",
        metavar="RUN",
        help="run folder or folder of runs; the first is the baseline",
    )
    parser.add_argument(
        "--by",
        choices=["auto", "arm", "argument"],
        default="auto",
        help="what makes a side (default: the arm where there are several, else the argument)",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.05,
        help="change that does not matter, as a fraction (default 0.05)",
    )
    parser.add_argument(
        "--group",
        choices=["all", "first", "reuse", "rebuilt"],
        default="reuse",
        help="turns of the primary endpoint (default reuse)",
    )
    parser.add_argument(
        "--history",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="folders of equal runs, one a build, that tell the run-to-run noise",
    )
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print JSON")
    form.add_argument("--markdown", action="store_true", help="print Markdown")
    parser.add_argument(
        "-o",
        "--html",
        type=Path,
        metavar="FILE",
        help="write a report with the sides' first runs and the comparison",
    )


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from loadgen.errors import EXIT_INCONCLUSIVE, EXIT_INVALID, EXIT_OK, InputError
    from loadgen.outfile import refuse_input
    from loadgen.report import markdown
    from loadgen.report.compare import as_json, compare
    from loadgen.report.sides import read_sides, run_folders, split
    from loadgen.report.terminal import print_comparison
    from loadgen.report.write import REPORT_FILE

    if not 0 <= args.tolerance < float("inf"):
        raise InputError(f"--tolerance must be a number of at least 0, not {args.tolerance}")
    grouped = split(args.runs, args.by)
    if len(grouped) < 2:
        raise InputError(
            f"all runs are on one side ({grouped[0][0]}); name runs of another arm, or use --by argument"
        )
    if args.html:
        read = [path for _, folders in grouped for folder in folders for path in folder.iterdir()]
        refuse_input(args.html, [path for path in read if path.name != REPORT_FILE], "-o")
    sides = read_sides(grouped)
    history = read_sides([(str(argument), run_folders(argument)) for argument in args.history])
    found = [
        compare(sides[0], other, tolerance=args.tolerance, group=args.group, history=history)
        for other in sides[1:]
    ]
    if args.html:
        from loadgen.report.write import write_comparison

        write_comparison(args.html, sides, found)
    if args.json:
        print(json.dumps([as_json(one) for one in found]))
    elif args.markdown:
        print("\n".join(markdown.comparison(one) for one in found), end="")
    else:
        for one in found:
            print_comparison(one, Console())
    outcomes = {one.outcome for one in found}
    if "invalid" in outcomes:
        return EXIT_INVALID
    return EXIT_INCONCLUSIVE if "inconclusive" in outcomes else EXIT_OK
