"""`loadgen trace …`: its actions stand in `trace_show`, `trace_files` and `trace_make`."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from loadgen.cli import trace_files, trace_make, trace_show


def add_arguments(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    trace_show.add_arguments(actions)
    trace_files.add_arguments(actions)
    trace_make.add_arguments(actions)


def run(args: argparse.Namespace) -> int:
    do: Callable[[argparse.Namespace], int] = args.do
    return do(args)
