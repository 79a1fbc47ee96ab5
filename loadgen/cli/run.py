"""`loadgen run [WORKLOAD.toml] --host URL`: replay a trace or a corpus against an endpoint."""

from __future__ import annotations

import argparse
import re
import sys
from pathlib import Path
from typing import Any

from loadgen.errors import InputError
from loadgen.replay import options as run_options


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("workload", nargs="?", help="workload file (TOML) with any of the options below")
    parser.add_argument("--host", help="URL of the endpoint, with or without /v1")
    parser.add_argument(
        "-u", "--users", type=int, metavar="N", help="live sessions (closed) or the cap on them (open, timed)"
    )
    parser.add_argument(
        "--processes", type=int, metavar="N", help="worker processes (default: play in one process)"
    )
    parser.add_argument(
        "-t", "--run-time", metavar="T", help="stop dealing after this time, such as 300 or 10m"
    )
    parser.add_argument("--dry-run", action="store_true", help="say what would be sent, and stop")
    parser.add_argument("--resume", type=Path, metavar="RUN", help="go on with an interrupted run")
    parser.add_argument("--json", action="store_true", help="print the summary as JSON")
    parser.add_argument("--prepare-only", action="store_true", help=argparse.SUPPRESS)
    run_options.add_flags(parser)


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from loadgen.replay import launch, limits
    from loadgen.replay.handover import write_handover
    from loadgen.replay.prepare import prepare
    from loadgen.replay.transport import hide

    if args.resume:
        fleet = launch.Fleet(users=args.users, processes=args.processes, run_time=args.run_time)
        code = launch.play_on(args.resume, fleet)
        show(args.resume, json=args.json)
        return code
    workload = run_options.read_workload(Path(args.workload)) if args.workload else {}
    options = run_options.resolve(vars(args), workload)
    host = args.host or workload.get("host")
    if not host:
        raise InputError("name the endpoint with --host URL")
    fleet = launch.Fleet(
        users=_number(args.users, "--users") or _number(workload.get("users"), "users"),
        processes=_number(args.processes, "--processes") or _number(workload.get("processes"), "processes"),
        run_time=_time(args.run_time or workload.get("run_time")),
    )
    if options.stages is not None and fleet.users not in (None, 1):
        raise InputError(f"-u {fleet.users} has no effect with --stages")
    streams = limits.streams_of(
        options.schedule, width=options.width, users=fleet.users, in_flight=options.in_flight
    )
    if not args.dry_run:
        limits.require_files(
            streams, fleet.processes
        )  # before the endpoint hears of it, and contexts are built
    options.header = hide(options.header)
    prepared = prepare(options, str(host))
    arguments = run_options.to_arguments(options)
    if args.prepare_only:
        print(write_handover(launch.handover(prepared, options, arguments)))
        return 0
    console = Console(stderr=True, highlight=False)
    console.print(plan_line(prepared), style="bold")
    for note in prepared.notes:
        console.print(f"note: {note}", markup=False)
    if args.dry_run:
        return 0
    dealt = sum(not session.warmup for session in prepared.job.sessions)
    if options.schedule == "closed" and (fleet.users or 1) > dealt:
        console.print(
            f"note: {fleet.users} live sessions are asked for and {dealt} will ever run; --copies N deals each more than once",
            markup=False,
        )
    if hint := launch.sizing_hint(streams, fleet.processes):
        console.print(f"hint: {hint}", markup=False)
    run_dir, code = launch.play(prepared, options, fleet, arguments)
    show(run_dir, json=args.json)
    return code


def _number(value: Any, name: str) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise InputError(f"{name} should be a whole number from 1, not {value!r}")
    return value


def _time(text: Any) -> str | None:
    """Locust's form of a time, such as 300, 20m or 1h30m."""
    if text is None:
        return None
    found = re.fullmatch(r"(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s?)?", str(text))
    if not str(text) or found is None or not any(int(part or 0) for part in found.groups()):
        raise InputError(f"--run-time {text!r} is no time above 0; say 300, 20m or 1h30m")
    return str(text)


def plan_line(prepared: Any) -> str:
    """One sentence: how much goes where."""
    job = prepared.job
    sent = (
        f"{job.prompt_tokens:,} prompt tokens"
        if job.prompt_tokens is not None
        else "an unknown number of prompt tokens"
    )
    wanted = f", {job.output_tokens:,} output tokens" if job.output_tokens is not None else ""
    simulated = (
        f" (simulated: {prepared.facts.simulated}, {job.time_scale:g} times real time)"
        if prepared.facts.simulated
        else ""
    )
    return (
        f"{sum(not s.warmup for s in job.sessions)} sessions, {job.turns} turns, {sent}{wanted} to {job.model} at {' and '.join(job.urls)}{simulated}, "
        f"schedule {job.schedule['kind']}"
    )


def show(run_dir: Path, *, json: bool) -> None:
    """The run's table, or its summary for machines."""
    from rich.console import Console

    from loadgen.report.table import render_arms

    summary = run_dir / "summary.json"
    if not summary.is_file():
        return
    if json:
        sys.stdout.write(summary.read_text())
        return
    console = Console(highlight=False)
    render_arms([run_dir], console)
    console.print(f"report: {run_dir / 'report.html'}", markup=False, soft_wrap=True)
