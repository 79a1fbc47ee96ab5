"""What an agent's prompt holds besides files: system prompt, tool definitions, the repository's tree, a task."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any, NamedTuple

import msgspec
import orjson

from loadgen.corpus.recipe import FORMAT, Recipe
from loadgen.paths import data_dir

TREE_LINES = 400
_TASKS = (
    "Find out why {path} does more work than it has to on its most common path, and make it do less without changing what it returns.",
    "Users report that an error raised in {path} says too little to act on. Follow it to where it is shown and make it say what went wrong and what to do.",
    "{path} has grown two responsibilities. Read it and everything that uses it, and propose where to cut, with the smallest first step.",
    "Add a test for the case in {path} that nothing covers yet, and fix what the test brings to light.",
    "The behaviour of {path} at the edges of its input is not written down anywhere. Read the code, write it down, and say where it looks unintended.",
    "Something between {path} and its callers leaks a resource when an exception passes through. Find it and close it.",
    "Make what {path} offers usable with an explicit time limit, in the way the rest of the repository does such things.",
    "Review the last changes around {path} as if you had to maintain them: what would you want different, and why?",
)


class Agent(NamedTuple):
    """The parts that do not depend on the session."""

    system: str
    tools: list[dict[str, Any]]
    tree: str | None


@cache
def _shipped_system() -> str:
    return (data_dir("corpora") / "agent" / "system.md").read_text(encoding="utf-8").strip()


@cache
def _shipped_tools() -> bytes:
    return (data_dir("corpora") / "agent" / "tools.json").read_bytes()


def agent(recipe: Recipe, paths: Sequence[str]) -> Agent:
    """The recipe's agent over a repository whose readable files are `paths`."""
    prompt = recipe.prompt
    system = _shipped_system() if prompt.system is None else prompt.system.strip()
    tools = orjson.loads(_shipped_tools()) if prompt.tools else []
    return Agent(system, tools, tree(paths) if prompt.tree else None)


def recipe_hash(recipe: Recipe) -> str:
    """SHA-256 (hex) of all that decides the text apart from source, tokenizer and sizes: rules, prompt, what ships with loadgen.

    Name and description do not count: the same repository gives the same bytes under any name.
    """
    parts = [
        FORMAT,
        recipe.files,
        recipe.prompt,
        _shipped_system(),
        hashlib.sha256(_shipped_tools()).hexdigest(),
    ]
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def session_digest(seed: int, index: int) -> str:
    """12 hex digits that name a session; two sessions share one or two of the first, rarely more."""
    return hashlib.sha256(f"{seed}\0{index}".encode()).hexdigest()[:12]


def task(digest: str, path: str) -> str:
    """What the engineer asks for in the session called `digest`, about `path`."""
    return _TASKS[int(digest, 16) % len(_TASKS)].format(path=path)


def tool_line(tool: dict[str, Any]) -> str:
    return orjson.dumps(tool).decode()


def tree(paths: Sequence[str], limit: int = TREE_LINES) -> str:
    """Indented tree of `paths`, at most `limit` lines: folders are opened level by level while they fit."""
    files: dict[str, list[str]] = {}
    folders: dict[str, set[str]] = {"": set()}
    below: Counter[str] = Counter()
    for path in paths:
        folder, _, name = path.rpartition("/")
        files.setdefault(folder, []).append(name)
        while folder:
            below[folder] += 1
            parent, _, last = folder.rpartition("/")
            folders.setdefault(folder, set())
            folders.setdefault(parent, set()).add(last)
            folder = parent
    opened = {""}
    lines = len(folders[""]) + len(files.get("", ()))
    level = [""]
    while level:
        level = sorted(f"{parent}/{name}".lstrip("/") for parent in level for name in folders[parent])
        for folder in level:
            more = len(folders[folder]) + len(files.get(folder, ()))
            if lines + more <= limit:
                opened.add(folder)
                lines += more
        level = [folder for folder in level if folder in opened]

    def show(folder: str, indent: str) -> list[str]:
        out = []
        for name in sorted(folders[folder]):
            path = f"{folder}/{name}".lstrip("/")
            if path in opened:
                out += [f"{indent}{name}/", *show(path, indent + "  ")]
            else:
                out.append(f"{indent}{name}/ ({below[path]} files)")
        return out + [indent + name for name in sorted(files.get(folder, ()))]

    found = show("", "")
    hidden = len(found) - limit
    return "\n".join(found[:limit] + ([f"({hidden} more lines)"] if hidden > 0 else []))
