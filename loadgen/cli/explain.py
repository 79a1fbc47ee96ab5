"""`loadgen explain CODE`: what a reason, an error class or an exit code means."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "code", nargs="?", metavar="CODE", help="name from a report, or an exit code; without it, all of them"
    )
    parser.add_argument("--json", action="store_true", help="print as JSON")


def run(args: argparse.Namespace) -> int:
    import json
    from difflib import get_close_matches

    import msgspec
    from rich.console import Console
    from rich.table import Table

    from loadgen.errors import InputError
    from loadgen.report.meanings import meanings

    known = {meaning.name: meaning for meaning in meanings()}
    wanted = (args.code or "").strip().lower().replace("-", "_")
    if args.code is not None and wanted not in known:
        close = get_close_matches(wanted, known, n=3)
        raise InputError(
            f"nothing is called {args.code!r}; "
            + (f"did you mean {' or '.join(close)}?" if close else "`loadgen explain` lists everything")
        )
    found = [known[wanted]] if wanted else list(known.values())
    if args.json:
        print(json.dumps(msgspec.to_builtins(found)))
        return 0
    console = Console(highlight=False)
    if wanted:
        (meaning,) = found
        console.print(f"{meaning.name} ({meaning.kind})", style="bold")
        console.print(meaning.sentence, markup=False)
        console.print(f"What to do: {meaning.remedy}", markup=False)
        return 0
    table = Table("code", "kind", "meaning", box=None, header_style="bold", pad_edge=False)
    for meaning in found:
        table.add_row(meaning.name, meaning.kind, meaning.sentence)
    console.print(table)
    return 0
