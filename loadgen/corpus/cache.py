"""Contexts that were built before: `contexts/<content hash>-<key>` in the user's cache, found by what they were built from.

Two commits can give the same texts and so the same content hash; their records differ, hence the key in the name.

Two builders at once do no harm: each builds in a folder of its own, the first to finish names it, and the other takes
that one, whose bytes are the same.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import stat
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from loadgen.corpus.context import MANIFEST, ContextSet, load_set
from loadgen.corpus.staging import BUILDING, leftovers, staged, sweep
from loadgen.errors import InputError
from loadgen.paths import cache_dir

KINDS = ("contexts", "repos", "templates", "workloads", "fragments", "remote")
"""Contexts; copies of repositories; what endpoints were found to do with prompts; traces that runs made of contexts; texts
escaped for a run's requests; what a worker fetched from a master on another machine."""

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
    """Everything in the cache, by kind and name. Files that several entries share count in each of them."""
    found = []
    for kind in KINDS:
        paths = [path for path in sorted(cache_dir(kind).iterdir()) if _shown(path)]
        if kind == "fragments" and paths:
            found.append(Kept(kind, "*", size(paths), f"{len(paths)} texts, ready to be sent"))
            continue
        found += [Kept(kind, path.name, size([path]), _what(kind, path)) for path in paths]
        found += [
            Kept(kind, path.name, size([path]), "left by a build that was killed")
            for path in leftovers(cache_dir(kind))
        ]
    return found


def total(kinds: tuple[str, ...] = KINDS) -> int:
    """Bytes on disk of all entries of `kinds`: a file with several names counts once."""
    return size([cache_dir(kind) for kind in kinds])


class Cleared(NamedTuple):
    """`linked` bytes were removed here and are on disk still: a folder that was handed out, or another kind, has them too."""

    freed: int
    linked: int


def clear(kinds: tuple[str, ...] = KINDS) -> Cleared:
    """Remove all entries of `kinds`, but not what a builder is at just now; says how many bytes that freed.

    Files handed out by link stay where they are.
    """
    names: dict[tuple[int, int], int] = {}
    freed = linked = 0
    roots = [cache_dir(kind) for kind in kinds]
    gone = [path for root in roots for path in root.iterdir() if not path.name.startswith(BUILDING)]
    gone += [path for root in roots for path in leftovers(root)]
    for info in _files(gone):
        names[info.st_dev, info.st_ino] = names.get((info.st_dev, info.st_ino), 0) + 1
        if names[info.st_dev, info.st_ino] == 1:
            linked += info.st_size
        if names[info.st_dev, info.st_ino] == info.st_nlink:
            freed += info.st_size
            linked -= info.st_size
    for root in roots:
        sweep(root)
    for path in gone:
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)
    for root in roots:
        with contextlib.suppress(OSError):  # a builder is at work in it
            root.rmdir()
    return Cleared(freed, linked)


def size(paths: Iterable[Path]) -> int:
    """Bytes of the files at and below `paths`; one with several names counts once."""
    return sum({(info.st_dev, info.st_ino): info.st_size for info in _files(paths)}.values())


def _files(paths: Iterable[Path]) -> Iterator[os.stat_result]:
    for path in paths:
        for item in path.rglob("*") if path.is_dir() else (path,):
            with contextlib.suppress(OSError):  # removed meanwhile
                info = item.stat(follow_symlinks=False)
                if stat.S_ISREG(info.st_mode):
                    yield info


def _shown(path: Path) -> bool:
    return path.name != _KEYS and not path.name.startswith(".") and path.suffix != ".lock"


def _what(kind: str, path: Path) -> str:
    try:
        if kind == "contexts":
            found: ContextSet = load_set(path)
            first = found.contexts[0]
            return f"{len(found.contexts)} x {found.tokens:,} {found.tokenizer} tokens of {first.corpus}"
        if kind == "repos":
            return (path / "url").read_text().strip()
        if kind == "workloads":
            return f"trace of {len(load_set(path / 'contexts').contexts)} contexts"
    except (OSError, InputError):
        return "damaged"
    return ""
