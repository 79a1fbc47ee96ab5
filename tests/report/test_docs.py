"""The pages name everything, and their commands and files are real."""

from __future__ import annotations

import argparse
import importlib
import re
import shlex
from pathlib import Path

import pytest

from loadgen.cli import COMMANDS
from loadgen.report.slo import read_slo
from loadgen.report.validity import Code

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "docs" / "reading-the-report.md", ROOT / "docs" / "statistics.md"]
CI = ROOT / "examples" / "ci"


def test_every_reason_stands_in_the_page() -> None:
    text = PAGES[0].read_text()
    assert set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE)) == {code.value for code in Code}


def commands() -> list[str]:
    found = []
    for path in [*PAGES, *CI.glob("*.yml")]:
        for line in path.read_text().splitlines():
            match = re.match(r"\s+(?:- |run: )*(loadgen (?:report|compare|gate) .*)", line)
            if match:
                found.append(match.group(1).split("#")[0])
    return found


@pytest.mark.parametrize("command", commands())
def test_every_command_of_the_pages_is_one(command: str) -> None:
    _, name, *arguments = shlex.split(re.sub(r"\$\{\w+:\+([^}]*)\}", r"\1", command))
    parser = argparse.ArgumentParser(exit_on_error=False)
    importlib.import_module(COMMANDS[name][0]).add_arguments(parser)
    parser.parse_args(arguments)


def test_there_are_commands_to_check() -> None:
    assert len(commands()) >= 7


def test_every_option_is_in_the_pages_or_the_help_of_gate() -> None:
    text = "".join(path.read_text() for path in [*PAGES, *CI.glob("*")])
    for name in ("report", "compare", "gate"):
        parser = argparse.ArgumentParser()
        importlib.import_module(COMMANDS[name][0]).add_arguments(parser)
        for action in parser._actions:
            for option in action.option_strings:
                assert option.startswith("-h") or option == "--help" or option in text, (
                    f"{name} {option} is in no page"
                )


def test_the_example_rules_are_valid() -> None:
    assert len(read_slo(CI / "slo.toml").slo) == 4
