"""Writes the pages that come from the code: cli.md and codes.md. `python docs/generate.py`; a test says when to."""

from __future__ import annotations

import argparse
from pathlib import Path

from loadgen.cli import COMMANDS, build_parser
from loadgen.report.meanings import meanings

HERE = Path(__file__).parent
_NOTE = "<!-- Made by docs/generate.py; change the code and run it again. -->\n"


def cli_page() -> str:
    """Every command, argument and option, from the parsers."""
    parts = [
        _NOTE,
        "# Commands\n",
        "Every command takes `--help`. Exit codes are explained in [what the codes mean](codes.md).\n",
    ]
    for name, parser in _children(build_parser(COMMANDS)):
        parts += _command(f"loadgen {name}", parser, level=2)
    return "\n".join(parts)


def _children(parser: argparse.ArgumentParser) -> list[tuple[str, argparse.ArgumentParser]]:
    return [
        child
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
        for child in action.choices.items()
    ]


def _command(name: str, parser: argparse.ArgumentParser, level: int) -> list[str]:
    parts = [f"{'#' * level} {name}\n"]
    if parser.description:
        parts.append(f"{parser.description.strip()}\n")
    shown = [
        action
        for action in parser._actions
        if not isinstance(action, argparse._HelpAction | argparse._SubParsersAction)
        and action.help != argparse.SUPPRESS
    ]
    if shown:
        parts.append("| | |\n|---|---|")
        parts += [f"| {_names(action)} | {_help(action)} |" for action in shown]
        parts.append("")
    if parser.epilog:
        parts.append("```text\n" + parser.epilog.strip() + "\n```\n")
    for child, below in _children(parser):
        parts += _command(f"{name} {child}", below, level + 1)
    return parts


def _names(action: argparse.Action) -> str:
    value = action.metavar or (action.dest.upper() if action.option_strings else action.dest)
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    takes = "" if action.nargs == 0 else f" {value}"
    found = ", ".join(f"{option}{takes}" for option in action.option_strings) or str(value)
    return "`" + found.replace("|", "\\|") + "`"


def _help(action: argparse.Action) -> str:
    return " ".join(
        ((action.help or "") % {"default": action.default, "prog": "loadgen"})
        .replace("|", "\\|")
        .replace("<", "&lt;")
        .split()
    )


def codes_page() -> str:
    """Every reason, error class and exit code, with its remedy."""
    parts = [_NOTE, "# What the codes mean\n", "`loadgen explain CODE` prints the same for one of them.\n"]
    titles = {
        "invalid run": "Reasons for which a run is invalid",
        "failed turn": "Classes of failed turns",
        "exit code": "Exit codes",
    }
    kind = ""
    for meaning in meanings():
        if meaning.kind != kind:
            kind = meaning.kind
            parts.append(f"\n## {titles[kind]}\n\n| code | meaning | what to do |\n|---|---|---|")
        row = (f"`{meaning.name}`", meaning.sentence, meaning.remedy)
        parts.append("| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |")
    return "\n".join(parts) + "\n"


PAGES = {"cli.md": cli_page, "codes.md": codes_page}

if __name__ == "__main__":
    for file, make in PAGES.items():
        (HERE / file).write_text(make(), encoding="utf-8")
