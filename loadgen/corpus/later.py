"""What tools return in later turns: parts of files, search results, changes of real commits, reports of test runs.

Each function yields pieces without end of its kind, until the corpus has no more; none shows the same twice.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterator, Sequence

from loadgen.corpus.exact import Piece
from loadgen.corpus.library import Library, framed
from loadgen.corpus.source import Entry

_READ_LINES = 120
_GREP_LINES = 40
_GREP_FILES = 60
_DIFF_LINES = 200
_TEST_LINES = 30
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{6,30}")
_TEST_FILE = re.compile(
    r"(^|/)(tests?|specs?|__tests__)/|(^|[/_.-])(test|spec)s?[_.-]|_test\.|Test\.\w+$", re.IGNORECASE
)
_TEST_NAME = re.compile(
    r"^\s*(?:async\s+)?(?:def|fn|func|function|void|public void|fun)\s+(test\w*|Test\w+|\w+_test)\b"
    r"|^\s*(?:it|test|describe|context)\s*\(?\s*[\"'`]([^\"'`\n]{3,80})[\"'`]"
    r"|^\s*(?:TEST|TEST_F|TEST_P)\(\s*(\w+\s*,\s*\w+)\)",
    re.MULTILINE,
)


def reads(library: Library, order: Sequence[Entry]) -> Iterator[Piece]:
    """Files in slices of 120 lines, as an agent that pages through them."""
    for entry in order:
        text = library.text(entry)
        if text is None:
            continue
        lines = text.splitlines(keepends=True)
        for first in range(0, len(lines), _READ_LINES):
            part = lines[first : first + _READ_LINES]
            name = f"{entry.path}:{first + 1}-{first + len(part)}"
            yield Piece(entry.path, framed(name, "".join(part)))


def searches(library: Library, order: Sequence[Entry]) -> Iterator[Piece]:
    """Matches of identifiers, one line a match, over 60 files at a time; no line of a file is a match twice."""
    for start in range(0, len(order), _GREP_FILES):
        group = [
            (entry.path, text.splitlines())
            for entry in order[start : start + _GREP_FILES]
            if (text := library.text(entry))
        ]
        where: dict[str, list[tuple[str, int, str]]] = {}
        for path, lines in group:
            for number, line in enumerate(lines, 1):
                for word in set(_WORD.findall(line[:200])):
                    where.setdefault(word, []).append((path, number, line.strip()[:200]))
        shown: set[tuple[str, int]] = set()
        for word in sorted(where, key=lambda word: _rank(word, order[start].path)):
            matches = [match for match in where[word] if match[:2] not in shown]
            if len(matches) < 3:
                continue
            matches = matches[:_GREP_LINES]
            shown.update(match[:2] for match in matches)
            body = "".join(f"{path}:{number}: {line}\n" for path, number, line in matches)
            yield Piece(matches[0][0], framed(word, body, "search"))


def tests(library: Library, order: Sequence[Entry]) -> Iterator[Piece]:
    """Reports of runs of the repository's own tests, by their names; one in seven fails where its source line stands.

    No test ran: results and times are made from hashes.
    """
    for entry in order:
        text = library.text(entry) if _TEST_FILE.search(entry.path) else None
        if text is None:
            continue
        found = [(match.start(), next(filter(None, match.groups()))) for match in _TEST_NAME.finditer(text)]
        for first in range(0, len(found), _TEST_LINES):
            part = found[first : first + _TEST_LINES]
            lines, failures, total_ms = [], [], 0
            for offset, name in part:
                number = _number(entry.path, name, offset)
                total_ms += number % 400
                failed = number % 7 == 0
                lines.append(f"{'FAIL' if failed else 'ok'}  {name} ({number % 400} ms)\n")
                if failed:
                    line = text.count("\n", 0, offset) + 1
                    quoted = "".join(
                        f"    {text_line}\n" for text_line in text[offset:].lstrip("\n").splitlines()[:6]
                    )
                    failures.append(f"{entry.path}:{line}: {name}\n{quoted}")
            summary = (
                f"{len(part) - len(failures)} passed, {len(failures)} failed in {total_ms / 1000:.2f} s\n"
            )
            yield Piece(
                entry.path,
                framed(
                    f"{entry.path}#{first // _TEST_LINES + 1}", "".join([*lines, *failures, summary]), "tests"
                ),
            )


def diffs(library: Library, commits: Sequence[str], read: Callable[[str], str | None]) -> Iterator[Piece]:
    """What commits changed, 200 lines at a time; `read` gives a commit's message and patch, None when objects are missing."""
    for commit in commits:
        text = read(commit)
        if text is None:
            continue
        lines = library.safe(text).splitlines(keepends=True)
        for first in range(0, len(lines), _DIFF_LINES):
            part = "".join(lines[first : first + _DIFF_LINES])
            if part.strip():
                yield Piece(
                    commit,
                    framed(
                        f"{commit[:12]}:{first + 1}", part if part.endswith("\n") else part + "\n", "commit"
                    ),
                )


def _rank(word: str, salt: str) -> bytes:
    return hashlib.blake2b(f"{salt}\0{word}".encode(), digest_size=8).digest()


def _number(*parts: object) -> int:
    return int.from_bytes(hashlib.blake2b("\0".join(map(str, parts)).encode(), digest_size=6).digest())
