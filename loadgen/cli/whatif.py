"""`loadgen whatif`: a trace on a simulated machine, without a server."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadgen.sim.grid import Grid
    from loadgen.sim.profile import Tier


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", help="trace file")
    parser.add_argument("--profile", default="blog", help="shipped profile or TOML file (default: blog)")
    parser.add_argument("--arm", action="append", help="arm of the profile; repeatable (default: all)")
    parser.add_argument("--sessions", default="10", help="live sessions, separated by commas (default: 10)")
    parser.add_argument(
        "--hbm",
        metavar="GB",
        help="KV pool of all GPUs together in GB, separated by commas (default: the arm's)",
    )
    parser.add_argument(
        "--tier",
        action="append",
        metavar="FILE",
        help="TOML file of an external tier, or `none`; repeatable (default: the arm's)",
    )
    parser.add_argument(
        "--schedule",
        choices=("closed", "sweep", "timed"),
        default="closed",
        help="order and timing of turns (default: closed)",
    )
    parser.add_argument(
        "--answers",
        choices=("live", "recorded"),
        default="live",
        help="whose answers come back in the next prompt (default: live)",
    )
    parser.add_argument("--output-tokens", type=int, help="tokens of every answer (default: the trace's)")
    parser.add_argument("--gap-scale", type=float, default=1.0, help="multiply all gaps (default: 1)")
    parser.add_argument("--gap-cap-s", type=float, help="longest gap")
    parser.add_argument("--slo-ttft-s", type=float, help="promise for the TTFT of later turns")
    parser.add_argument(
        "--slo-quantile",
        type=float,
        default=0.95,
        help="share of turns and of sessions that must keep it (default: 0.95)",
    )
    parser.add_argument(
        "--knee", action="store_true", help="find the exact number of sessions at which the promise breaks"
    )
    parser.add_argument("--html", metavar="FILE", help="write the grid as a page")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    import sys
    from pathlib import Path

    import msgspec

    from loadgen.outfile import destination, refuse_input, write_file
    from loadgen.sim import grid as grids
    from loadgen.sim import page
    from loadgen.sim import profile as profiles
    from loadgen.sim.workload import Workload
    from loadgen.trace.reader import open_trace

    _check(args)
    if args.html:
        named = [args.trace, args.profile, *(args.tier or [])]
        destination(Path(args.html))
        refuse_input(Path(args.html), map(Path, named), "--html")
    profile = profiles.load(args.profile)
    sessions = [int(value) for value in _numbers("--sessions", args.sessions, whole=True)]
    pools = _numbers("--hbm", args.hbm) if args.hbm else []
    promise = None if args.slo_ttft_s is None else grids.Promise(args.slo_ttft_s, args.slo_quantile)
    with open_trace(Path(args.trace)) as trace:
        workload = Workload(
            trace, output=args.output_tokens, gap_scale=args.gap_scale, gap_cap_s=args.gap_cap_s
        )
    noisy = sys.stderr.isatty() and not args.json
    results, knee = grids.run(
        workload,
        list(
            grids.configurations(
                profile, args.arm or list(profile.arms), pools, [_tier(name) for name in args.tier or []]
            )
        ),
        sessions,
        schedule=args.schedule,
        answers=args.answers,
        promise=promise,
        find_knee=args.knee,
        progress=(lambda text: print(text, file=sys.stderr)) if noisy else None,
    )
    grid = grids.Grid(
        profile=profile.name, trace=Path(args.trace).name, schedule=args.schedule, answers=args.answers, promise=promise, results=results, knee=knee
    )  # fmt: skip
    if args.html:
        write_file(Path(args.html), page.render(grid))
    if args.json:
        print(msgspec.json.format(msgspec.json.encode(grid), indent=1).decode())
    else:
        _print(grid)
    return 0


def _check(args: argparse.Namespace) -> None:
    import math

    from loadgen.errors import InputError

    for name in ("slo_ttft_s", "gap_cap_s", "gap_scale"):
        value = getattr(args, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise InputError(f"--{name.replace('_', '-')} must be a number of at least 0, not {value}")
    if not 0 < args.slo_quantile <= 1:
        raise InputError(f"--slo-quantile must be above 0 and at most 1, not {args.slo_quantile}")
    if args.output_tokens is not None and args.output_tokens < 1:
        raise InputError("--output-tokens must be at least 1")


def _numbers(flag: str, text: str, whole: bool = False) -> list[float]:
    from loadgen.errors import InputError

    try:
        values = [float(part) for part in text.split(",")]
    except ValueError:
        values = []
    if not values or not all(0 < value < 1e9 and (not whole or value == int(value)) for value in values):
        kind = "whole numbers" if whole else "numbers"
        raise InputError(f"{flag} takes {kind} above 0, separated by commas, not {text!r}")
    return values


def _tier(name: str) -> Tier | None:
    from loadgen.sim.profile import load_tier

    return None if name == "none" else load_tier(name)


def _print(grid: Grid) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console()
    table = Table(title=f"simulated: {escape(grid.profile)}", title_justify="left", box=None, pad_edge=False)
    table.add_column("configuration", min_width=14, overflow="fold")
    for head in ("N", "first", "reuse", "p95", "HBM %", "ext. %", "GB/s", "kept %"):
        table.add_column(head, justify="right", no_wrap=True)
    for row in grid.results:
        reuse, first = row.ttft_s["reuse"], row.ttft_s["first"]
        table.add_row(
            escape(row.configuration),
            f"{row.sessions}",
            *(_number(value) for value in (first["p50"], reuse["p50"], reuse["p95"])),
            *(f"{row.hit_share[tier] * 100:.1f}" for tier in ("hbm", "external")),
            f"{row.read_gb_s:.2f}",
            "-" if row.sessions_within is None else f"{row.sessions_within * 100:.0f}",
        )
    console.print(table)
    console.print(
        "N: sessions; first, reuse, p95: TTFT in s (p50 of first turns, p50 and p95 of reuse turns); GB/s: reads of the tier"
    )
    rejected = sum(row.rejected for row in grid.results)
    if rejected:
        console.print(f"{rejected} turns left out: their prompt and answer are larger than the KV pool")
    fewest = min(row.sessions for row in grid.results)
    for name, knee in grid.knee.items():
        told = f"holds up to {knee} sessions" if knee is not None else f"does not hold for {fewest} sessions"
        console.print(f"{escape(name)}: the promise {told}")


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"
