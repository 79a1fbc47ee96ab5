"""`loadgen trace …`: synthesize, show and validate traces."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loadgen.errors import EXIT_OK


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)

    synth = actions.add_parser("synth", help="make a trace from a folder of contexts")
    synth.add_argument("contexts", type=Path, help="folder made by `loadgen corpus build`")
    synth.add_argument("-o", "--out", type=Path, help="trace to write (default: CONTEXTS/trace.jsonl)")
    synth.add_argument(
        "--sessions", type=int, help="number of sessions, one a context (default: all contexts)"
    )
    synth.add_argument("--turns", type=int, default=5, help="turns of each session (default: 5)")
    synth.add_argument(
        "--new-tokens", type=int, default=500, help="tokens of each later user message (default: 500)"
    )
    synth.add_argument("--output-tokens", type=int, default=128, help="tokens of each answer (default: 128)")
    synth.add_argument("--seed", type=int, default=0, help="seed of the texts of later turns (default: 0)")
    synth.set_defaults(do=_synth)

    importer = actions.add_parser("import", help="make a trace from foreign logs; the format is detected")
    importer.add_argument(
        "paths", type=Path, nargs="+", metavar="PATH", help="files or folders of one format"
    )
    importer.add_argument(
        "-o", "--out", type=Path, required=True, help="trace to write (.jsonl, .jsonl.zst, .jsonl.gz)"
    )
    importer.add_argument(
        "--format", dest="format_name", metavar="NAME", help="format of the files (see docs/traces.md)"
    )
    importer.add_argument("--name", help="name of the trace (default: from the first path)")
    importer.add_argument("--json", action="store_true", help="print one JSON object")
    importer.set_defaults(do=_import)

    exporter = actions.add_parser("export", help="write a trace in another tool's format")
    exporter.add_argument("trace", type=Path)
    exporter.add_argument(
        "--to", required=True, metavar="NAME", help="mooncake, weka, vllm, lmcache, aiperf or otel"
    )
    exporter.add_argument("-o", "--out", type=Path, required=True, help="file to write")
    exporter.set_defaults(do=_export)

    show = actions.add_parser("show", help="print what is in a trace")
    show.add_argument("trace", type=Path)
    show.add_argument("--json", action="store_true", help="print one JSON object (keys: docs/traces.md)")
    show.set_defaults(do=_show)

    validate = actions.add_parser(
        "validate", help="check every record of traces; exit code 2 at the first fault"
    )
    validate.add_argument("traces", type=Path, nargs="+", metavar="TRACE")
    validate.set_defaults(do=_validate)


def run(args: argparse.Namespace) -> int:
    do: Callable[[argparse.Namespace], int] = args.do
    return do(args)


def _synth(args: argparse.Namespace) -> int:
    from loadgen import tokens
    from loadgen.corpus.context import load_set
    from loadgen.corpus.material import Material
    from loadgen.trace.synth import from_contexts

    tokenizer = tokens.get(load_set(args.contexts).tokenizer)
    out = from_contexts(
        args.contexts,
        args.out or args.contexts / "trace.jsonl",
        sessions=args.sessions,
        turns=args.turns,
        new_tokens=args.new_tokens,
        output_tokens=args.output_tokens,
        new_text=Material(args.contexts, tokenizer, args.seed).text,
        seed=args.seed,
        tokenizer=tokenizer,
    )
    print(f"wrote {out}")
    return EXIT_OK


def _import(args: argparse.Namespace) -> int:
    from loadgen.trace.importing import import_trace

    done = import_trace(args.paths, args.out, format_name=args.format_name, name=args.name)
    if args.json:
        report = {
            "skipped": dict(done.report.skipped),
            "notes": dict(done.report.notes),
            "first": done.report.first,
        }
        json.dump(
            {
                "path": str(done.path),
                "format": done.format.name,
                "files": done.files,
                **done.counts,
                **report,
            },
            sys.stdout,
        )
        print()
        return EXIT_OK
    print(
        f"wrote {done.path}: {done.counts['sessions']:,} sessions ({done.counts['sub_agents']:,} sub-agents), "
        f"{done.counts['turns']:,} turns from {done.files:,} {done.format.name} files"
    )
    print(f"fidelity {done.format.fidelity}; not known from this source: {done.format.lost}")
    _print_report(done.report.skipped, done.report.notes, done.report.first)
    return EXIT_OK


def _export(args: argparse.Namespace) -> int:
    from loadgen.trace.exporting import export_trace
    from loadgen.trace.reader import open_trace

    with open_trace(args.trace) as trace:
        report = export_trace(trace, args.to, args.out)
    print(f"wrote {args.out}")
    _print_report(report.skipped, report.notes, report.first)
    return EXIT_OK


def _print_report(skipped: Counter[str], notes: Counter[str], first: dict[str, str]) -> None:
    for title, reasons in (("skipped", skipped), ("note", notes)):
        for reason, count in reasons.most_common():
            print(
                f"{title}: {count:,} × {reason}" + (f" (first: {first[reason]})" if reason in first else "")
            )


def _show(args: argparse.Namespace) -> int:
    from loadgen.trace.reader import open_trace
    from loadgen.trace.summary import summarize

    with open_trace(args.trace) as trace:
        figures = summarize(trace)
    if args.json:
        json.dump(figures, sys.stdout, indent=1)
        print()
    else:
        _print(figures)
    return EXIT_OK


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
        f"prompt tokens {_number(figures['input_tokens'])}, output tokens {_number(figures['output_tokens'])}, ideal hit share "
        + ("unknown" if share is None else f"{share:.1%} (by {figures['ideal_hit_basis']})")
    )
    table = Table("", "n", "mean", "p50", "p90", "p95", "p99", "max", box=None)
    for column in table.columns[1:]:
        column.justify = "right"
    for label, key in _ROWS:
        row = figures[key]
        if row["n"]:
            table.add_row(
                label,
                f"{row['n']:,}",
                *(_number(row[q]) for q in ("mean", "p50", "p90", "p95", "p99", "max")),
            )
    console.print(table)


_ROWS = (
    ("turns per session", "turns_per_session"),
    ("prompt tokens", "prompt_tokens"),
    ("largest prompt of a session", "largest_prompt"),
    ("new prompt tokens", "new_tokens"),
    ("output tokens", "output"),
    ("gap after a tool, s", "tool_gap_s"),
    ("gap of a human, s", "human_gap_s"),
)


def _number(value: float | None) -> str:
    if value is None:
        return "–"
    return f"{value:,.0f}" if value == int(value) or abs(value) >= 100 else f"{value:,.2f}"


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
