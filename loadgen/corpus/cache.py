"""Contexts that were built before: `contexts/<content hash>-<key>` in the user's cache, found by what they were built from.

Two commits can give the same texts and so the same content hash; their records differ, hence the key in the name.

Two builders at once do no harm: each builds in a folder of its own, the first to finish names it, and the other takes
that one, whose bytes are the same.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from loadgen.corpus.context import MANIFEST, ContextSet, load_set
from loadgen.corpus.staging import staged
from loadgen.errors import InputError
from loadgen.paths import cache_dir

KINDS = ("contexts", "repos", "templates")
_KEYS = "keys"


def key(*inputs: Any) -> str:
    """Name of a build by its inputs."""
    return hashlib.sha256(msgspec.json.encode(inputs, order="sorted")).hexdigest()[:32]


def place(content_hash: str, name: str) -> Path:
    """Where contexts with this content hash that were built under the key `name` are kept."""
    return cache_dir("contexts") / f"{content_hash[:32]}-{name[:8]}"


def find(name: str) -> Path | None:
    """The folder that was kept under the key `name`, if it is whole: each text has the digest that the manifest says."""
    pointer = cache_dir("contexts", _KEYS) / name
    try:
        folder = place(pointer.read_text().strip(), name)
        contexts = load_set(folder).contexts
        for context in contexts:
            with (folder / context.file).open("rb") as file:
                if hashlib.file_digest(file, "sha256").hexdigest() != context.sha256:
                    return None
    except (OSError, InputError):
        return None
    return folder


def keep(name: str, folder: Path, content_hash: str) -> Path:
    """Move the finished `folder` into the cache under the key `name`; returns where it is."""
    for path in folder.iterdir():
        path.chmod(0o444)  # what is handed out may be a second name of the same file
    final = place(content_hash, name)
    if final.is_dir() and not (final / MANIFEST).is_file():
        shutil.rmtree(final)
    try:
        folder.rename(final)
    except OSError:
        if not (final / MANIFEST).is_file():
            raise
        # Somebody was faster, or an older one is damaged: equal hashes are equal bytes, so theirs may go.
        old = folder.with_suffix(".old")
        final.rename(old)
        folder.rename(final)
        shutil.rmtree(old, ignore_errors=True)
    pointer = cache_dir("contexts", _KEYS) / name
    temporary = pointer.with_suffix(f".{os.getpid()}.tmp")
    temporary.write_text(content_hash)
    temporary.replace(pointer)
    return final


def hand_out(folder: Path, out: Path) -> None:
    """Make `out` a copy of the cached `folder`, by hard links where the file system allows."""
    with staged(out) as copy:
        for path in folder.iterdir():
            target = copy / path.name
            try:
                os.link(path, target)
            except OSError:
                shutil.copyfile(path, target)


class Kept(NamedTuple):
    """One entry of the cache."""

    kind: str
    name: str
    bytes: int
    what: str


def entries() -> list[Kept]:
    """Everything in the cache, by kind and name."""
    found = []
    for kind in KINDS:
        for path in sorted(cache_dir(kind).iterdir()):
            if path.name != _KEYS and not path.name.startswith(".") and path.suffix != ".lock":
                found.append(Kept(kind, path.name, _size(path), _what(kind, path)))
    return found


def clear(kinds: tuple[str, ...] = KINDS) -> int:
    """Remove all entries of `kinds`; returns how many bytes that were. Files handed out by link stay where they are."""
    freed = 0
    for kind in kinds:
        freed += _size(cache_dir(kind))
        shutil.rmtree(cache_dir(kind), ignore_errors=True)
    return freed


def _size(path: Path) -> int:
    if path.is_file():
        return path.stat().st_size
    return sum(item.stat().st_size for item in path.rglob("*") if item.is_file())


def _what(kind: str, path: Path) -> str:
    try:
        if kind == "contexts":
            found: ContextSet = load_set(path)
            first = found.contexts[0]
            return f"{len(found.contexts)} x {found.tokens:,} {found.tokenizer} tokens of {first.corpus}"
        if kind == "repos":
            return (path / "url").read_text().strip()
    except (OSError, InputError):
        return "damaged"
    return ""
