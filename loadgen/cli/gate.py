"""`loadgen gate RUN… [--slo FILE] [--baseline RUN…]`: pass (0), fail (1), invalid (3) or inconclusive (4)."""

from __future__ import annotations

import argparse
import json
import os
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from loadgen.report import slo

    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = "An SLO file:\n\n" + (slo.__doc__ or "").split("\n\n", 1)[1]
    parser.add_argument(
        "runs", type=Path, nargs="+", metavar="RUN", help="run folder or folder of runs to judge"
    )
    parser.add_argument("--slo", type=Path, metavar="FILE", help="TOML file of rules")
    parser.add_argument(
        "--baseline",
        type=Path,
        nargs="+",
        default=[],
        metavar="RUN",
        help="runs to compare with: a regression fails",
    )
    parser.add_argument(
        "--history",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="folders of equal runs, one a build, that tell the run-to-run noise",
    )
    parser.add_argument("--junit", type=Path, metavar="FILE", help="also write JUnit XML")
    parser.add_argument(
        "--markdown",
        type=Path,
        metavar="FILE",
        help="also append Markdown (default: $GITHUB_STEP_SUMMARY where it is set)",
    )
    parser.add_argument("--json", action="store_true", help="print the verdict as JSON")


def run(args: argparse.Namespace) -> int:
    import msgspec
    from rich.console import Console

    from loadgen.errors import InputError
    from loadgen.outfile import refuse_input
    from loadgen.report import markdown
    from loadgen.report.gate import gate
    from loadgen.report.junit import write_junit
    from loadgen.report.slo import read_slo
    from loadgen.report.terminal import print_verdict

    if args.slo:
        for flag in ("junit", "markdown"):
            if getattr(args, flag):
                refuse_input(getattr(args, flag), [args.slo], f"--{flag}")
    verdict = gate(args.runs, read_slo(args.slo) if args.slo else None, args.baseline, args.history)
    if args.junit:
        write_junit(args.junit, verdict)
    summary = args.markdown or os.environ.get("GITHUB_STEP_SUMMARY")
    if summary:
        try:
            with open(summary, "a", encoding="utf-8") as file:
                file.write(markdown.verdict(verdict))
        except OSError as error:
            raise InputError(f"{summary} cannot be written: {error.strerror}") from None
    if args.json:
        found = {"outcome": verdict.outcome, "exit_code": verdict.exit_code} | msgspec.to_builtins(verdict)
        print(json.dumps(found))
    else:
        print_verdict(verdict, Console())
    return verdict.exit_code
