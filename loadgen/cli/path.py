"""`loadgen path NAME`: where a shipped file is."""

from __future__ import annotations

import argparse

from loadgen import paths


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", help="file name, for example agent_loop.py")


def run(args: argparse.Namespace) -> int:
    print(paths.find(args.name))
    return 0
