"""The documentation as data: code blocks, the commands in them, links."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED = ("cli.md", "codes.md")
_FENCE = re.compile(
    r"(?:<!-- run: (?P<mode>skip|nightly|endpoint|exit)(?P<rest>[^>]*?) -->\n)?^```(?P<language>\w*)\n(?P<code>.*?)^```$",
    re.MULTILINE | re.DOTALL,
)
_INDENTED = re.compile(r"(?:^ {4}.*\n?)+", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block. `mode` is what the comment in front of it says: `skip REASON`, `nightly`, `endpoint` (the simulated
    endpoint, which the test has running already) or `exit CODE…` (exit codes that are right)."""

    page: str
    line: int
    language: str
    code: str
    mode: str = ""
    rest: str = ""


def pages() -> list[Path]:
    """Every page, and the files at the top that people read."""
    return [
        *sorted(DOCS.glob("*.md")),
        *(ROOT / name for name in ("README.md", "CONTRIBUTING.md") if (ROOT / name).is_file()),
    ]


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(
            page.name,
            text.count("\n", 0, found.start()) + 1,
            found["language"],
            found["code"],
            found["mode"] or "",
            (found["rest"] or "").strip(),
        )
        for found in _FENCE.finditer(text)
    ]


def commands(page: Path) -> Iterator[list[str]]:
    """Every `loadgen …` in a block of either kind, as words. What is left out (`…`) and other programs are not there."""
    text = page.read_text(encoding="utf-8")
    pieces = [block.code for block in blocks(page) if block.language in ("", "sh", "bash")]
    pieces += [
        re.sub(r"^ {4}", "", found[0], flags=re.MULTILINE)
        for found in _INDENTED.finditer(_FENCE.sub("", text))
    ]
    for piece in pieces:
        for line in re.sub(r"\\\n\s*", "", piece).splitlines():
            for part in re.split(r"\|\||&&|;|\||(?<!>)&|\bdo\b", re.sub(r"\$\([^)]*\)", "X", line)):
                yield from _words(part)


def _words(part: str) -> Iterator[list[str]]:
    try:
        words = shlex.split(part, comments=True)
    except ValueError:
        return
    while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
        words = words[1:]
    if words and words[0] == "loadgen" and not any("…" in word or word == "..." for word in words):
        yield [re.sub(r"^[<>]+$", "", word) for word in words[1 : _redirection(words)]]


def _redirection(words: list[str]) -> int:
    return next((i for i, word in enumerate(words) if re.match(r"[12&]?>", word)), len(words))


def links(page: Path) -> Iterator[str]:
    """Targets of links to other pages: `page.md`, `page.md#heading`, `#heading`."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def anchors(page: Path) -> set[str]:
    """Ids of a page's headings, as GitHub and MyST make them."""
    text = _FENCE.sub("", page.read_text(encoding="utf-8"))
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    }
