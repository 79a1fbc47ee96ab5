"""`loadgen capacity [WORKLOAD.toml] --host URL --slo FILE`: the largest load that meets an SLO."""

from __future__ import annotations

import argparse
from pathlib import Path

from loadgen.errors import EXIT_INCONCLUSIVE, EXIT_OK, InputError
from loadgen.replay import options as run_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", nargs="?", help="workload file (TOML) with any of the options below")
    parser.add_argument("--host", help="URL of the endpoint, with or without /v1")
    parser.add_argument("--low", type=float, default=1, metavar="N", help="load to try first (default: 1)")
    parser.add_argument(
        "--high", type=float, default=64, metavar="N", help="largest load to try (default: 64)"
    )
    parser.add_argument(
        "--close",
        type=float,
        default=0.1,
        metavar="X",
        help="for rates: how close the edge must be found (default: 0.1)",
    )
    parser.add_argument(
        "-t", "--run-time", metavar="T", help="longest time a step deals turns, such as 300 or 10m"
    )
    parser.add_argument("--json", action="store_true", help="print the answer as JSON")
    run_options.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    import msgspec
    from rich.console import Console

    from loadgen.experiment import capacity
    from loadgen.report.slo import read_slo
    from loadgen.report.summary import measure
    from loadgen.report.write import REPORT_FILE, write_compared

    workload = run_options.read_workload(Path(args.workload)) if args.workload else {}
    flags = vars(args)
    if flags.get("schedule") is None and "schedule" not in workload:
        flags["schedule"] = "closed"
    by_rate = (flags.get("schedule") or workload.get("schedule")) == "open"
    if by_rate:
        flags["rate"] = flags.get("rate") or args.low
    options = run_options.resolve(flags, workload)
    host = args.host or workload.get("host")
    if not host:
        raise InputError("name the endpoint with --host URL")
    if not options.slo:
        raise InputError("name the rules that a load must meet with --slo FILE")
    if not 0 < args.low <= args.high or args.close <= 0:
        raise InputError("--low must be above 0 and at most --high, and --close above 0")
    rules = read_slo(Path(options.slo))
    options.slo = None  # judged here, step by step
    words = Console(stderr=True, highlight=False)
    search = capacity.Search(low=args.low, high=args.high, close=args.close, rate=by_rate)
    unit = "sessions a second" if by_rate else "live sessions"

    def said(step: capacity.Step) -> None:
        words.print(f"{step.load:g} {unit}: {step.outcome}. {step.why}", markup=False)

    folder, found, code = capacity.play(search, options, str(host), rules, run_time=args.run_time, said=said)
    runs = [folder / step.run for step in found.steps if (folder / step.run / "summary.json").is_file()]
    if runs:
        write_compared(folder / REPORT_FILE, [measure(one) for one in runs])
    if args.json:
        print(msgspec.json.encode(found).decode())
    else:
        best = (
            f"{found.best:g} {unit}"
            if found.best is not None
            else f"no load down to {min(s.load for s in found.steps):g} {unit}"
        )
        edge = f"; {found.edge:g} did not" if found.edge is not None else "; nothing above was tried"
        console = Console(highlight=False)
        console.print(
            f"{best} met the rules{edge}."
            + ("" if found.complete else " The last step could not be judged."),
            markup=False,
        )
        console.print(f"steps and report: {folder}", markup=False, soft_wrap=True)
    if code:
        return code
    return EXIT_OK if found.complete and found.best is not None else EXIT_INCONCLUSIVE
