"""The documentation against the code: generated pages are current, commands parse, links lead somewhere, nothing leaks."""

from __future__ import annotations

import argparse
import importlib.util
import re
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
from doc_pages import DOCS, GENERATED, ROOT, anchors, blocks, commands, links, pages

from loadgen.cli import COMMANDS, build_parser
from loadgen.report.meanings import meanings


def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", GENERATED)
def test_generated_pages_are_current(name: str) -> None:
    made = generator().PAGES[name]()
    assert (DOCS / name).read_text(encoding="utf-8") == made, "run: python docs/generate.py"


def test_every_command_and_option_is_in_the_docs() -> None:
    text = (DOCS / "cli.md").read_text(encoding="utf-8")

    def missing(parser: argparse.ArgumentParser, name: str) -> list[str]:
        found = [] if f" {name}\n" in text else [name]
        for action in parser._actions:
            if isinstance(action, argparse._SubParsersAction):
                for child_name, child in action.choices.items():
                    found += missing(child, f"{name} {child_name}")
            elif action.help != argparse.SUPPRESS and "-h" not in action.option_strings:
                found += [f"{name} {option}" for option in action.option_strings if option not in text]
        return found

    parser = build_parser(COMMANDS)
    (group,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    assert [gap for name, child in group.choices.items() for gap in missing(child, f"loadgen {name}")] == []


def test_every_code_is_in_the_docs() -> None:
    text = (DOCS / "codes.md").read_text(encoding="utf-8")
    assert [meaning.name for meaning in meanings() if f"`{meaning.name}`" not in text] == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_every_command_line_in_a_page_is_one_that_exists(
    page: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    wrong = []
    for words in commands(page):
        if "--help" in words or "--version" in words:
            words = [word for word in words if word not in ("--help", "--version")]
            if not words or words[0] in COMMANDS:
                continue
        try:
            build_parser(COMMANDS).parse_args(words)
        except SystemExit:
            wrong.append(f"loadgen {' '.join(words)}: {capsys.readouterr().err.strip().splitlines()[-1]}")
    assert wrong == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_between_pages_lead_somewhere(page: Path) -> None:
    broken = []
    for target in links(page):
        file, _, anchor = target.partition("#")
        other = (page.parent / file).resolve() if file else page
        if not other.exists() or (anchor and other.suffix == ".md" and anchor not in anchors(other)):
            broken.append(target)
    assert broken == []


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_pages_hold_nothing_of_the_machine_they_were_written_on(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert re.findall(r"(?<!/home)/work/\w+|/root/|/tmp/(?:venv|ship)", text) == []


def test_blocks_that_are_not_run_say_why() -> None:
    silent = [
        f"{page.name}:{block.line}"
        for page in pages()
        for block in blocks(page)
        if block.mode == "skip" and not block.rest
    ]
    assert silent == []


def test_toml_and_python_blocks_are_valid() -> None:
    for page in pages():
        for block in blocks(page):
            if block.language == "toml":
                tomllib.loads(block.code)
            elif block.language == "python":
                compile(block.code, f"{block.page}:{block.line}", "exec")


def test_every_page_is_in_the_table_of_contents() -> None:
    index = (DOCS / "index.md").read_text(encoding="utf-8")
    entries = [
        line.strip()
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", index, re.DOTALL)
        for line in tree.splitlines()
    ]
    listed = {
        path.stem
        for entry in entries
        if entry and not entry.startswith(":")
        for path in DOCS.glob(f"{entry}.md")
    }
    assert {path.stem for path in DOCS.glob("*.md")} - listed == {"index"}


def test_the_dockerfile_and_the_package_agree_on_python() -> None:
    wanted = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"]
    (version,) = re.findall(r"ARG PYTHON=3\.(\d+)", (ROOT / "deploy" / "Dockerfile").read_text())
    assert int(version) >= int(wanted.removeprefix(">=3."))
