"""`loadgen trace import | export | anonymize | redact`: traces that come and go."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from loadgen.errors import EXIT_OK, InputError

if TYPE_CHECKING:
    from loadgen.trace.formats.base import Report


def add_arguments(actions: Any) -> None:
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
    importer.add_argument("--licence", help="licence of the data, kept in the trace (for example Apache-2.0)")
    importer.add_argument("--json", action="store_true", help="print one JSON object")
    importer.set_defaults(do=_import)

    exporter = actions.add_parser("export", help="write a trace in another tool's format")
    exporter.add_argument("trace", type=Path, help="trace file")
    exporter.add_argument(
        "--to", required=True, metavar="NAME", help="mooncake, weka, vllm, lmcache, aiperf or otel"
    )
    exporter.add_argument("-o", "--out", type=Path, required=True, help="file to write")
    exporter.set_defaults(do=_export)

    anonymous = actions.add_parser(
        "anonymize", help="keep lengths, prefix structure and timing; drop all content"
    )
    anonymous.add_argument("trace", type=Path, help="trace file")
    anonymous.add_argument("-o", "--out", type=Path, required=True, help="trace to write")
    anonymous.add_argument(
        "--block-size",
        type=int,
        default=1,
        metavar="TOKENS",
        help="sharing is kept to so many tokens (default: 1)",
    )
    anonymous.set_defaults(do=_anonymize)

    redactor = actions.add_parser("redact", help="replace secrets by text of equal token length")
    redactor.add_argument("trace", type=Path, help="trace file")
    redactor.add_argument("-o", "--out", type=Path, required=True, help="trace to write")
    redactor.add_argument(
        "--personal", action="store_true", help="e-mail addresses and names of home folders, too"
    )
    redactor.add_argument("--tokenizer", help="counts lengths (default: the trace's, else tekken)")
    redactor.set_defaults(do=_redact)


def _import(args: argparse.Namespace) -> int:
    from loadgen.trace.importing import import_trace

    done = import_trace(
        args.paths, args.out, format_name=args.format_name, name=args.name, licence=args.licence
    )
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
    print_report(done.report)
    return EXIT_OK


def print_report(report: Report) -> None:
    """What was left out or changed, a line a reason, with the first place."""
    for title, reasons in (("skipped", report.skipped), ("note", report.notes)):
        for reason, count in reasons.most_common():
            print(
                f"{title}: {count:,} × {reason}"
                + (f" (first: {report.first[reason]})" if reason in report.first else "")
            )


def _export(args: argparse.Namespace) -> int:
    from loadgen.trace.exporting import export_trace
    from loadgen.trace.reader import open_trace

    with open_trace(args.trace) as trace:
        report = export_trace(trace, args.to, args.out)
    print(f"wrote {args.out}")
    print_report(report)
    return EXIT_OK


def _anonymize(args: argparse.Namespace) -> int:
    from loadgen.trace.anonymize import anonymize
    from loadgen.trace.reader import open_trace

    if not 1 <= args.block_size <= 1 << 20:
        raise InputError(f"--block-size must be at least 1 and at most {1 << 20}, not {args.block_size}")
    with open_trace(args.trace) as trace:
        anonymize(trace, args.out, block_size=args.block_size)
    print(f"wrote {args.out}: lengths, prefix structure and timing; no text, no names, no hashes")
    return EXIT_OK


def _redact(args: argparse.Namespace) -> int:
    from loadgen import tokens
    from loadgen.trace.reader import open_trace
    from loadgen.trace.redact import Redactor, redact

    with open_trace(args.trace) as trace:
        tokenizer = tokens.get(args.tokenizer or trace.header.tokenizer or tokens.DEFAULT)
        redactor = Redactor(tokenizer.count, personal=args.personal)
        redact(trace, args.out, redactor)
    found = (
        ", ".join(f"{count} × {kind}" for kind, count in redactor.found.most_common())
        or "nothing that looks like a secret"
    )
    print(f"wrote {args.out}; replaced {found}")
    if redactor.inexact:
        print(f"note: {redactor.inexact} secrets have a stand-in of another token length")
    print(
        "a pattern search finds secrets of known shapes only; look through what you publish, or anonymize it"
    )
    return EXIT_OK
