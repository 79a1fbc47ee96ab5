"""A folder that appears complete or not at all."""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loadgen.errors import InputError


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
    folder.mkdir()
    try:
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
