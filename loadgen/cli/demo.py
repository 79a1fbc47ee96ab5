"""`loadgen demo`: the whole way in one command, on a simulated endpoint."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from loadgen.errors import EXIT_INVALID, EXIT_OK, InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--repo",
        default="stdlib",
        metavar="PATH_OR_URL",
        help="git repository to build the contexts from (default: this Python's standard library)",
    )
    parser.add_argument("--rev", help="revision of the repository (default: HEAD)")
    parser.add_argument(
        "--contexts", type=int, default=10, metavar="N", help="number of contexts (default: 10)"
    )
    parser.add_argument(
        "--tokens", type=int, default=140_000, metavar="N", help="tokens a context (default: 140000)"
    )
    parser.add_argument("--turns", type=int, default=5, metavar="N", help="turns a context (default: 5)")
    parser.add_argument(
        "--output-tokens", type=int, default=128, metavar="N", help="output tokens a turn (default: 128)"
    )
    parser.add_argument(
        "--scale",
        type=float,
        default=20.0,
        metavar="X",
        help="simulated seconds in a wall second (default: 20)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="N", help="seed of the contexts' order (default: 0)"
    )
    parser.add_argument(
        "-o",
        "--out",
        type=Path,
        default=Path("runs"),
        metavar="DIR",
        help="folder for the run folder (default: runs)",
    )
    parser.add_argument("--json", action="store_true", help="print both summaries as JSON")


def run(args: argparse.Namespace) -> int:
    import json

    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn

    from loadgen.cli.run import plan_line
    from loadgen.experiment import demo
    from loadgen.report.summary import measure, summary_of
    from loadgen.report.table import print_table
    from loadgen.report.write import REPORT_FILE, write_compared

    for name in ("contexts", "turns", "output_tokens"):
        if getattr(args, name) < 1:
            raise InputError(f"--{name.replace('_', '-')} must be at least 1, not {getattr(args, name)}")
    wanted = demo.Demo(
        corpus=args.repo,
        rev=args.rev,
        sessions=args.contexts,
        turns=args.turns,
        context_tokens=args.tokens,
        output_tokens=args.output_tokens,
        scale=args.scale,
        seed=args.seed,
        out=args.out,
    )
    words = Console(stderr=True, highlight=False)
    bar = Progress(
        TextColumn("building contexts"),
        BarColumn(),
        MofNCompleteColumn(),
        console=words,
        transient=True,
        disable=not words.is_terminal,
    )
    task = bar.add_task("contexts", total=args.contexts)

    def building() -> Any:
        bar.start()
        return lambda done, total: bar.update(task, completed=done, total=total)

    def built(contexts: Any) -> None:
        bar.stop()
        words.print(
            f"{len(contexts.contexts)} contexts of exactly {contexts.tokens:,} tokens from {contexts.contexts[0].corpus} "
            f"({contexts.tokenizer}); longest common prefix of any two: {contexts.max_common_prefix} tokens"
        )

    def planned(arm: str, prepared: Any) -> None:
        words.print(f"arm {arm}: {plan_line(prepared)}")
        for note in prepared.notes:
            words.print(f"note: {note}", markup=False)

    try:
        result = demo.play(wanted, building=building, built=built, planned=planned)
    finally:
        bar.stop()
    measured = [measure(folder) for folder in result.runs]
    if not measured:
        return result.code
    report = write_compared(result.folder / REPORT_FILE, measured)
    if args.json:
        print(json.dumps([summary_of(one) for one in measured]))
        return result.code
    console = Console(highlight=False)
    differences = print_table(measured, console)
    console.print(f"report:      {report}", markup=False, soft_wrap=True)
    console.print(
        "run folders: " + ", ".join(str(folder) for folder in result.runs), markup=False, soft_wrap=True
    )
    return result.code or (EXIT_INVALID if differences else EXIT_OK)
