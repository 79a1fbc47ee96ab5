"""`loadgen completion SHELL`: completion for bash, zsh and fish, made from the parsers themselves."""

from __future__ import annotations

import argparse

SHELLS = ("bash", "zsh", "fish")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "shell", choices=SHELLS, help='where it goes: eval "$(loadgen completion bash)" in ~/.bashrc'
    )


def run(args: argparse.Namespace) -> int:
    import shtab

    from loadgen.cli import COMMANDS, build_parser

    print(shtab.complete(build_parser(COMMANDS), args.shell))
    return 0
