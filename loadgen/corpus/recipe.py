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


def _said(text: str, *, ge: int | None = None) -> msgspec.Meta:
    """Description of a key, for the schema and for `loadgen corpus init`; `ge` is its least value."""
    return msgspec.Meta(description=text, ge=ge)


class _Table(msgspec.Struct, kw_only=True, forbid_unknown_fields=True, omit_defaults=True):
    pass


class Origin(_Table):
    """Where the files come from."""

    url: Annotated[
        str, _said("a local path, an https, ssh or file URL, or stdlib: that of the running interpreter")
    ] = "stdlib"
    rev: Annotated[str | None, _said("branch, tag or commit; default is HEAD")] = None


class Files(_Table):
    """Which files an agent would read. Patterns are written as in .gitignore."""

    include: Annotated[list[str], _said("only files that match; empty is all")] = []
    exclude: Annotated[list[str], _said("not files that match")] = []
    languages: Annotated[
        list[str], _said("only these, by file extension: python, c, go, …; empty is all")
    ] = []
    max_bytes: Annotated[int, _said("larger files are left out", ge=1)] = 262_144
    read_bytes: Annotated[
        int, _said("of a longer file, one read shows about so many bytes, in whole lines", ge=256)
    ] = 32_768
    generated: Annotated[
        bool, _said("generated files: linguist-generated, by name, or by a mark in the first lines")
    ] = False
    vendored: Annotated[bool, _said("vendored files: linguist-vendored, or by the folder's name")] = False
    lock_files: Annotated[bool, _said("lock files of package managers")] = False
    minified: Annotated[bool, _said("files of very long lines: minified code, data")] = False
    gitignore: Annotated[bool, _said("in folders without git, leave out what .gitignore names")] = True


class Prompt(_Table):
    """How a context is laid out."""

    form: Annotated[
        Form, _said("document: one user message; messages: system prompt, tools, tool calls and results")
    ] = "document"
    layout: Annotated[
        Layout,
        _said(
            "distinct: no file in two contexts; rotated: the same files in another order; shared-prefix: all begin with "
            "shared_tokens; tenants: those of a team do; auto: distinct where there is enough text, else rotated"
        ),
    ] = "auto"
    seed: Annotated[int, _said("another seed deals and orders the files anew")] = 0
    system: Annotated[str | None, _said("the system prompt; default is the one that loadgen ships")] = None
    tools: Annotated[bool, _said("tool definitions as JSON")] = True
    tree: Annotated[bool, _said("the repository's tree")] = True
    shared_tokens: Annotated[
        int, _said("layouts shared-prefix and tenants: tokens that sessions share", ge=0)
    ] = 15_000
    tenants: Annotated[int, _said("layout tenants: how many teams", ge=1)] = 4
    pool_tokens: Annotated[
        int,
        _said(
            "layout rotated: tokens of the files that contexts draw from; 0 is what one context holds", ge=0
        ),
    ] = 0


class Later(_Table):
    """Shares of what later turns bring, relative to each other."""

    read: Annotated[int, _said("slices of files", ge=0)] = 6
    grep: Annotated[int, _said("search results", ge=0)] = 2
    diff: Annotated[int, _said("changes of real commits; only with git", ge=0)] = 1
    test: Annotated[
        int, _said("reports of test runs, made from the names of the repository's tests", ge=0)
    ] = 1


class Size(_Table):
    """What is built when the command line does not say."""

    contexts: Annotated[int, _said("how many contexts", ge=1)] = 10
    tokens: Annotated[int, _said("tokens of each", ge=64)] = 140_000


class Recipe(_Table):
    name: Annotated[str, _said("default is the file's name")]
    description: Annotated[str, _said("for readers")] = ""
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
        recipe = Recipe(name=_name_of(argument), source=Origin(url=argument))
    elif argument.endswith(".toml"):
        recipe = load(_shipped(argument) or Path(argument))
    elif Path(argument).expanduser().is_dir():
        recipe = Recipe(name=_name_of(argument), source=Origin(url=argument))
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


def _name_of(argument: str) -> str:
    last = argument.rstrip("/").replace(":", "/").rpartition("/")[2].removesuffix(".git")
    return last or "corpus"


def _shipped(name: str) -> Path | None:
    path = data_dir("corpora") / name
    return path if path.is_file() and path.parent == data_dir("corpora") else None
