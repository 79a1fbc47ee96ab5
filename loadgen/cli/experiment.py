"""`loadgen experiment E.toml`: arms, repeated and compared."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "file", type=Path, metavar="E.toml", help="experiment file, or the name of a shipped one"
    )
    parser.add_argument(
        "--out", type=Path, metavar="DIR", help="folder of the experiment (default: runs/<UTC>-<name>)"
    )
    parser.add_argument("--resume", type=Path, metavar="DIR", help="go on with the experiment in this folder")
    parser.add_argument(
        "--host",
        action="append",
        default=[],
        metavar="ARM=URL",
        help="use this endpoint for an arm instead of the file's commands",
    )
    parser.add_argument("--dry-run", action="store_true", help="print the plan and its power, and stop")
    parser.add_argument(
        "--verdict-only", action="store_true", help="with --resume: judge the runs that there are, start none"
    )
    parser.add_argument(
        "--history",
        type=Path,
        nargs="+",
        default=[],
        metavar="DIR",
        help="folders of earlier equal runs that tell the run-to-run noise",
    )
    parser.add_argument("--yes", action="store_true", help="send to hosts that are not local without asking")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")


def run(args: argparse.Namespace) -> int:
    import json
    import time

    from rich.console import Console

    from loadgen import paths
    from loadgen.errors import InputError
    from loadgen.experiment import present, spec, state
    from loadgen.experiment.order import order
    from loadgen.experiment.runner import Runner
    from loadgen.experiment.verdict import judge
    from loadgen.report.sides import read_sides, run_folders

    if args.out and args.resume:
        raise InputError("--out begins an experiment and --resume goes on with one; give one of them")
    if args.verdict_only and not args.resume:
        raise InputError("--verdict-only needs --resume DIR, the folder of the experiment")
    hosts = dict(word.split("=", 1) if "=" in word else (word, "") for word in args.host)
    experiment = spec.load(args.file if args.file.exists() else paths.find(str(args.file)), hosts)
    progress = Console(stderr=True, highlight=False)
    for line in present.plan_lines(experiment):
        progress.print(line, markup=False)
    if args.dry_run:
        for step in order(experiment):
            print(f"{step.index + 1:4d}  {step.folder}")
        return 0
    folder = args.resume or args.out
    if folder is None:
        folder = Path("runs") / f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}-{experiment.spec.name}"
    kept = state.resume(experiment, folder) if args.resume else state.begin(experiment, folder)
    if not args.verdict_only:

        def say(text: str) -> None:
            progress.print(text, markup=False)

        try:
            Runner(experiment, kept, folder, yes=args.yes, say=say).run()
        except KeyboardInterrupt:
            progress.print(
                f"stopped; go on with: loadgen experiment {args.file} --resume {folder}", markup=False
            )
            raise
    history = read_sides([(str(argument), run_folders(argument)) for argument in args.history])
    verdict = judge(experiment, kept, folder, history)
    result = present.as_json(experiment, verdict)
    (folder / "verdict.json").write_text(json.dumps(result, indent=1) + "\n")
    if args.json:
        print(json.dumps(result))
    else:
        present.print_verdict(experiment, verdict, Console(highlight=False))
        progress.print(f"folder: {folder}", markup=False, soft_wrap=True)
    return verdict.exit_code
