"""Recipes: what a corpus is, which of its files an agent would read, and how contexts are made of them.

A recipe is a TOML file; `corpora/` ships some, and a repository, a folder or `stdlib` named alone stands for the
default recipe over it.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from loadgen.errors import InputError
from loadgen.paths import data_dir

FORMAT = 1
"""Raised when the same recipe, commit and seed begin to give other bytes."""

Layout = Literal["auto", "distinct", "rotated", "shared-prefix", "tenants"]
Form = Literal["document", "messages"]
Positive = Annotated[int, msgspec.Meta(ge=1)]
Count = Annotated[int, msgspec.Meta(ge=0)]


class _Table(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class Origin(_Table):
    """`url`: a local path, https, ssh or file URL, or `stdlib`. `rev`: branch, tag or commit; default HEAD."""

    url: str = "stdlib"
    rev: str | None = None


class Files(_Table):
    """Which files an agent would read. Patterns are written as in `.gitignore`."""

    include: list[str] = []  # empty: all
    exclude: list[str] = []
    languages: list[str] = []  # as in `loadgen corpus init`: python, c, go, …; empty: all
    max_bytes: Positive = 262_144  # larger files are left out
    read_bytes: Positive = 32_768  # of a longer file, an agent's read shows so many bytes, in whole lines
    generated: bool = False  # linguist-generated, by attribute, name or a mark in its first lines
    vendored: bool = False  # linguist-vendored, by attribute or folder name
    lock_files: bool = False
    minified: bool = False  # very long lines
    gitignore: bool = True  # folders without git: leave out what .gitignore names


class Prompt(_Table):
    """How a context is laid out. `auto` is `distinct` where there is enough text and `rotated` where there is not."""

    form: Form = "document"
    layout: Layout = "auto"
    seed: int = 0
    system: str | None = None  # the system prompt; null is the one that loadgen ships
    tools: bool = True  # tool definitions as JSON
    tree: bool = True  # the repository's tree
    shared_tokens: Count = 15_000  # layouts shared-prefix and tenants: tokens that sessions share
    pool_tokens: Count = (
        0  # layout rotated: tokens of the files that contexts draw from; 0: as many as one context holds
    )
    tenants: Positive = 4  # layout tenants: how many teams


class Later(_Table):
    """Shares of what later turns bring: whole numbers, relative to each other."""

    read: Count = 6
    grep: Count = 2
    diff: Count = 1
    test: Count = 1


class Size(_Table):
    """What is built when the command line does not say."""

    contexts: Positive = 10
    tokens: Positive = 140_000


class Recipe(_Table):
    name: str
    description: str = ""
    source: Origin = msgspec.field(default_factory=Origin)
    files: Files = msgspec.field(default_factory=Files)
    prompt: Prompt = msgspec.field(default_factory=Prompt)
    later: Later = msgspec.field(default_factory=Later)
    size: Size = msgspec.field(default_factory=Size)


def is_url(text: str) -> bool:
    """Whether git would take `text` for something remote: `scheme://…`, `user@host:path` or `helper::…`."""
    if "://" in text or "::" in text:
        return True
    head, colon, _ = text.partition(":")
    return bool(colon) and "/" not in head and len(head) > 1 and not Path(text).exists()


def resolve(argument: str, rev: str | None = None, *, repo: str | None = None) -> Recipe:
    """The recipe that `argument` names: a TOML file, a shipped recipe, `stdlib`, a local path or a URL.

    `repo` replaces the recipe's source and `rev` its revision. Raises InputError when there is nothing of that name.
    """
    if argument == "stdlib":
        recipe = Recipe(name="stdlib")
    elif is_url(argument):
        recipe = Recipe(name=_name(argument), source=Origin(url=argument))
    elif argument.endswith(".toml"):
        recipe = load(_shipped(argument) or Path(argument))
    elif Path(argument).expanduser().is_dir():
        recipe = Recipe(name=_name(argument), source=Origin(url=argument))
    elif shipped := _shipped(argument + ".toml"):
        recipe = load(shipped)
    elif Path(argument).exists():
        raise InputError(f"{argument} is neither a folder nor a recipe (a .toml file)")
    else:
        known = ", ".join(sorted(path.stem for path in data_dir("corpora").glob("*.toml")))
        raise InputError(
            f"there is no repository, folder or recipe called {argument!r}; recipes that ship: stdlib{', ' + known if known else ''}"
        )
    if repo is not None:
        recipe.source = Origin(url=repo)
    if rev is not None:
        recipe.source = Origin(url=recipe.source.url, rev=rev)
    return recipe


def load(path: Path) -> Recipe:
    """Read a recipe file. A relative `source.url` that is a path is relative to the file's folder."""
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"the recipe {path} cannot be read: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    content.setdefault("name", path.stem)
    try:
        recipe = msgspec.convert(content, type=Recipe)
    except msgspec.ValidationError as error:
        raise InputError(
            f"{path}: {error}; recipe.schema.json beside the shipped recipes lists the keys"
        ) from None
    url = recipe.source.url
    if url != "stdlib" and not is_url(url) and not Path(url).expanduser().is_absolute():
        recipe.source.url = str((path.parent / url).resolve())
    return recipe


def _name(argument: str) -> str:
    last = argument.rstrip("/").replace(":", "/").rpartition("/")[2].removesuffix(".git")
    return last or "corpus"


def _shipped(name: str) -> Path | None:
    path = data_dir("corpora") / name
    return path if path.is_file() and path.parent == data_dir("corpora") else None
