"""Files that a user names for output: what may be written, and whole or not at all.

A link is followed: the file it points to is replaced and the link stays. What is neither absent nor a regular file is
refused, since a rename over it would put a file where a device, pipe or socket was; only the null device is taken, and
what it is given is dropped. Folders are not made: a mistyped one would be.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loadgen.errors import InputError

_KINDS = (
    (stat.S_ISCHR, "a character device"),
    (stat.S_ISBLK, "a block device"),
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
)


def destination(path: Path) -> Path | None:
    """The regular file, present or not yet, that output named `path` goes to; null for the null device.

    Raises InputError with one sentence when `path` is a folder, lies in no folder, is anything else but a file, or is
    where this command's own output goes.
    """
    try:
        # a link may point to where nothing is yet: links are followed by name
        target = Path(os.path.realpath(path))
        if target.is_symlink():
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        found = os.stat(path) if os.path.lexists(target) or _special(path) else None
        folder = target.parent
        if found is None:
            if not folder.is_dir():
                raise InputError(f"{path} cannot be written: {folder} is no folder")
            return target
        if stat.S_ISDIR(found.st_mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR))
    except (OSError, ValueError) as error:
        raise InputError(f"{path} cannot be written: {getattr(error, 'strerror', None) or error}") from None
    if _own(found):
        raise InputError(f"{path} cannot be written: it is where this command prints; name a file")
    if stat.S_ISREG(found.st_mode):
        return target
    if stat.S_ISCHR(found.st_mode) and os.path.samestat(found, os.stat(os.devnull)):
        return None
    kind = next((words for test, words in _KINDS if test(found.st_mode)), "no regular file")
    raise InputError(f"{path} cannot be written: it is {kind}; name a file")


def _special(path: Path) -> bool:
    """Whether there is something although its name, links followed, leads nowhere: an open pipe under /proc."""
    try:
        os.stat(path)
    except FileNotFoundError:
        return False
    return True


def _own(found: os.stat_result) -> bool:
    """Whether it is our standard output or error, redirected: a rename would take it away from them."""
    if stat.S_ISCHR(found.st_mode):
        return False
    for handle in (1, 2):
        with contextlib.suppress(OSError):
            if os.path.samestat(found, os.fstat(handle)):
                return True
    return False


def refuse_input(out: Path, inputs: Iterable[Path], flag: str = "-o") -> None:
    """Raise InputError when `out` is one of `inputs`, under whatever name: their content would be lost.

    `flag`: the option that named `out`. Inputs that are not there are left for their readers to complain of.
    """
    for path in inputs:
        with contextlib.suppress(OSError, ValueError):
            if os.path.samefile(out, path):
                raise InputError(f"{out} is both read and written; choose another {flag}")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """An empty file to fill, which takes the place of `path` when the block ends well and is removed when it does not.

    It lies beside the file that it replaces and has its mode, or that of any new file. Raises InputError as
    `destination` does, and where the disk refuses, within the block too.
    """
    target = destination(path)
    part: Path | None = None
    try:
        if target is None:
            handle, name = tempfile.mkstemp(prefix="loadgen-")
            part = Path(name)
        else:
            # a long name would grow beyond what file systems take: the part's does not begin with it
            part = target.parent / f".{target.name[:40]}.{secrets.token_hex(6)}.part"
            handle = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
            if target.exists():
                os.fchmod(handle, stat.S_IMODE(target.stat().st_mode))
        os.close(handle)
        yield part
        if target is not None:
            os.replace(part, target)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
    finally:
        if part is not None:
            part.unlink(missing_ok=True)


def write_file(path: Path, data: str | bytes) -> None:
    """Write a whole file, text as UTF-8. Raises InputError as `replacing` does."""
    with replacing(path) as part:
        part.write_bytes(data.encode("utf-8") if isinstance(data, str) else data)
