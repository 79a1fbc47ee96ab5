"""A folder that appears complete or not at all."""

from __future__ import annotations

import fcntl
import functools
import os
import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from loadgen import signals
from loadgen.errors import InputError

BUILDING = ".building-"  # how the names of folders begin that builders are at
_LOCK = ".lock"


def refuse_foreign(out: Path, ours: Callable[[str], bool]) -> None:
    """Raise InputError unless `out` is absent, empty, or holds only files whose names are `ours`."""
    if out.is_symlink() or (out.exists() and not out.is_dir()):
        raise InputError(f"{out} exists and is not a folder; name another with -o")
    foreign = sorted(path.name for path in out.iterdir() if not ours(path.name)) if out.is_dir() else []
    if foreign:
        raise InputError(f"{out} holds other files ({foreign[0]}); name an empty or a new folder with -o")


@contextmanager
def staged(out: Path) -> Iterator[Path]:
    """A new folder beside `out` that takes its place when the block ends well, and is removed when it does not."""
    out.parent.mkdir(parents=True, exist_ok=True)
    folder = out.parent / f".{out.name}.{secrets.token_hex(4)}"
    with signals.undisturbed() as disturbed:
        folder.mkdir()
        try:
            with disturbed():
                yield folder
            if out.is_dir():
                old = folder.with_suffix(".old")
                out.rename(old)
                folder.rename(out)
                shutil.rmtree(old)
            else:
                folder.rename(out)
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def building(root: Path) -> Iterator[Path]:
    """A new folder in `root` for a build, gone when the block ends. Those of builders that were killed are removed first.

    Its builder holds a lock beside it, which the system takes from a process that dies: that tells who is at work.
    """
    sweep(root)
    with signals.undisturbed() as disturbed, _own_lock(root) as lock:
        folder = lock.with_suffix("")
        folder.mkdir()
        try:
            with disturbed():
                yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def leftovers(root: Path) -> list[Path]:
    """Folders of builders in `root` that are gone."""
    return [folder for folder in _builders(root) if _unless_held(folder, lambda: None) and folder.is_dir()]


def sweep(root: Path) -> None:
    """Remove from `root` what builders have left that are gone. Safe beside builders at work, and beside another sweep."""
    for folder in _builders(root):
        _unless_held(folder, functools.partial(shutil.rmtree, folder, ignore_errors=True))


def _builders(root: Path) -> list[Path]:
    """The folders of builders in `root`; of those that have not made theirs yet or no more, its name."""
    names = {path.name.removesuffix(_LOCK) for path in root.glob(f"{BUILDING}*")}
    return [root / name for name in sorted(names)]


@contextmanager
def _own_lock(root: Path) -> Iterator[Path]:
    """The path of a new lock file that this process holds, removed when the block ends."""
    while True:
        path = root / f"{BUILDING}{secrets.token_hex(4)}{_LOCK}"
        with path.open("x") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:  # a sweep was faster
                continue
            except OSError:  # a file system without locks, where a sweep removes nothing
                pass
            if not _is(path, file):
                continue
            try:
                yield path
            finally:
                path.unlink(missing_ok=True)
            return


def _unless_held(folder: Path, remove: Callable[[], object]) -> bool:
    """Call `remove` and remove the lock of `folder` unless its builder is at work; whether he is not."""
    path = folder.with_name(folder.name + _LOCK)
    try:
        with path.open("a") as file:  # made where it is missing: then nobody holds it
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            remove()
            path.unlink(missing_ok=True)
    except OSError:  # held; or not ours to touch
        return False
    return True


def _is(path: Path, file: IO[str]) -> bool:
    """Whether `path` still names the open `file`."""
    try:
        return os.path.samestat(path.stat(), os.fstat(file.fileno()))
    except FileNotFoundError:
        return False
