"""`loadgen trace show | validate`: what is in a trace."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from loadgen.errors import EXIT_OK, InputError
from loadgen.outfile import destination


def add_arguments(actions: Any) -> None:
    show = actions.add_parser("show", help="print what is in a trace, and its hit share against cache size")
    show.add_argument("trace", type=Path, help="trace file")
    show.add_argument("--json", action="store_true", help="print one JSON object (keys: docs/traces.md)")
    show.add_argument("--html", type=Path, metavar="FILE", help="write a page with plots that opens offline")
    show.add_argument(
        "--concurrency",
        type=int,
        metavar="N",
        help="play N sessions at a time (default: as the trace's starts say)",
    )
    show.add_argument("--cap-tool", type=float, metavar="S", help="longest gap after a tool")
    show.add_argument("--cap-human", type=float, metavar="S", help="longest gap of a human")
    show.add_argument("--model", help="known model or its config.json, for sizes in GB")
    show.add_argument(
        "--kv-bytes", type=float, metavar="BYTES", help="KV bytes of one token of your model, for sizes in GB"
    )
    show.add_argument(
        "--tier",
        action="append",
        default=[],
        metavar="NAME=GB",
        help="mark a tier, for example hbm=300 (repeatable; needs --model or --kv-bytes)",
    )
    show.set_defaults(do=_show)

    validate = actions.add_parser(
        "validate", help="check every record of traces; exit code 2 at the first fault"
    )
    validate.add_argument("traces", type=Path, nargs="+", metavar="TRACE", help="trace files")
    validate.set_defaults(do=_validate)


def _show(args: argparse.Namespace) -> int:
    from loadgen.trace.reader import open_trace
    from loadgen.trace.residency import Question, hit_curve, residency
    from loadgen.trace.summary import summarize

    kv_bytes = _kv_bytes(args)
    question = Question(
        args.concurrency, args.cap_tool, args.cap_human, kv_bytes, _tiers(args.tier, kv_bytes)
    )
    if args.html is not None:
        destination(args.html)
    with open_trace(args.trace) as trace:
        figures = summarize(trace)
        curve = None if trace.header.fidelity == "lengths" else hit_curve(trace, question)
        figures["residency"] = None if curve is None else residency(curve, question)
        if args.html is not None:
            from loadgen.trace.page import write_page

            write_page(trace, figures, curve, args.html)
    if args.json:
        json.dump(figures, sys.stdout, indent=1)
        print()
        return EXIT_OK
    _print(figures)
    if args.html is not None:
        print(f"wrote {args.html}")
    return EXIT_OK


def _kv_bytes(args: argparse.Namespace) -> float | None:
    given: float | None = args.kv_bytes
    if args.model is not None:
        from loadgen.sizing.models import find

        if given is not None:
            raise InputError("--model and --kv-bytes say the same thing; give one")
        return float(find(args.model).bytes_per_token())
    if given is not None and not 0 < given < 1e12:
        raise InputError(f"--kv-bytes must be above 0, not {given}")
    return given


def _tiers(texts: list[str], kv_bytes: float | None) -> dict[str, float]:
    found: dict[str, float] = {}
    for text in texts:
        name, _, size = text.partition("=")
        try:
            found[name] = float(size)
        except ValueError:
            raise InputError(f"--tier wants NAME=GB, not {text!r}") from None
        if not 0 < found[name] < 1e12:
            raise InputError(f"--tier wants a size above 0, not {text!r}")
    if found and kv_bytes is None:
        raise InputError("--tier needs --model or --kv-bytes: without them gigabytes are no tokens")
    return found


def _print(figures: dict[str, Any]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    console = Console(highlight=False)
    title = figures["name"] or Path(figures["path"]).name
    console.print(
        f"[bold]{escape(title)}[/]: {figures['fidelity']}, from {escape(figures['source'] or 'an unknown source')}"
    )
    console.print(
        f"{figures['sessions']:,} sessions ({figures['sub_agents']:,} sub-agents, {figures['open_sessions']:,} without end), "
        f"{figures['turns']:,} turns, {figures['retries']:,} retries"
    )
    share = figures["ideal_hit_share"]
    console.print(
        f"prompt tokens {number(figures['input_tokens'])}, output tokens {number(figures['output_tokens'])}, ideal hit share "
        + ("unknown" if share is None else f"{share:.1%} (by {figures['ideal_hit_basis']})")
    )
    if figures["compactions"] is not None:
        console.print(
            f"compactions {figures['compactions']:,}, other breaks of the prefix {figures['breaks']:,}"
        )
    table = Table("", "n", "mean", "p50", "p90", "p95", "p99", "max", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for label, key in _ROWS:
        row = figures[key]
        if row["n"]:
            table.add_row(
                label, f"{row['n']:,}", *(number(row[q]) for q in ("mean", "p50", "p90", "p95", "p99", "max"))
            )
    console.print(table)
    if figures["residency"] is not None and figures["ideal_hit_share"]:
        _print_residency(console, figures["residency"])


def _print_residency(console: Any, found: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    who = (
        f"{found['concurrency']} sessions at a time"
        if found["concurrency"]
        else "sessions as the trace starts them"
    )
    console.print(
        f"\nhit share against cache size (LRU, {who}; distinct tokens {number(found['footprint_tokens'])})"
    )
    table = Table("cache, tokens", "GB", "hit share", "of the ideal", "", box=None)
    for row in found["curve"]:
        gb = "–" if row["gb"] is None else number(row["gb"])
        of = "–" if row["of_ideal"] is None else f"{row['of_ideal']:.0%}"
        table.add_row(number(row["tokens"]), gb, f"{row['hit_share']:.1%}", of, escape(row["tier"] or ""))
    console.print(table)
    waits = ", ".join(f"{row['within']} {row['share']:.0%}" for row in found["reuse_within"])
    console.print(f"shared tokens used again within: {waits}")


_ROWS = (
    ("turns per session", "turns_per_session"),
    ("prompt tokens", "prompt_tokens"),
    ("largest prompt of a session", "largest_prompt"),
    ("new prompt tokens", "new_tokens"),
    ("output tokens", "output"),
    ("gap after a tool, s", "tool_gap_s"),
    ("gap of a human, s", "human_gap_s"),
)


def number(value: float | None) -> str:
    """A figure with four digits or so; a dash for none."""
    if value is None:
        return "–"
    if value == int(value) or abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:,.2f}" if abs(value) >= 1 else f"{value:.3g}"


def _validate(args: argparse.Namespace) -> int:
    from loadgen.trace.reader import open_trace

    for path in args.traces:
        with open_trace(path) as trace:
            for ref in trace.blob_refs():
                if trace.blob(ref).file is not None:
                    trace.blob_path(ref)
            turns = sum(trace.turn_count(session.id) for session in trace.sessions)
            unfinished = len(trace.open_sessions())
        note = f", {unfinished} of them without an end record" if unfinished else ""
        print(
            f"{path}: a valid trace of version {trace.header.version}, {len(trace.sessions)} sessions{note}, {turns} turns"
        )
    return EXIT_OK
