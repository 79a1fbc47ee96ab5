"""Files of a folder that is no git repository, and the standard library of the running interpreter."""

from __future__ import annotations

import hashlib
import os
import sys
import sysconfig
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from loadgen.corpus.source import Entry
from loadgen.errors import InputError


class FolderSource:
    """All regular files under `root`. Symbolic links are not followed, special files are not opened, `.git` is not entered."""

    commit: str | None = None

    def __init__(
        self, root: Path, *, url: str | None = None, skip_folders: frozenset[str] = frozenset()
    ) -> None:
        self.url = url or str(root)
        self.skipped: Counter[str] = Counter()
        self._root = root
        self._skip = skip_folders | {".git", "__pycache__"}
        found = sorted(self._walk(), key=lambda item: item[0].path)
        self.entries: Sequence[Entry] = [entry for entry, _ in found]
        listing = "".join(f"{entry.path}\0{entry.size}\0{changed_ns}\n" for entry, changed_ns in found)
        self.identity = hashlib.sha256(listing.encode()).hexdigest()

    def _walk(self) -> list[tuple[Entry, int]]:
        """(entry, time of its last change in ns) of every file."""
        found: list[tuple[Entry, int]] = []
        pending = [(str(self._root), "")]
        while pending:
            where, prefix = pending.pop()
            try:
                with os.scandir(where) as items:
                    listing = list(items)
            except OSError:
                self.skipped["folder that cannot be read"] += 1
                continue
            for item in listing:
                path = prefix + item.name
                if item.is_file(follow_symlinks=False):
                    status = item.stat(follow_symlinks=False)
                    # A name need not be UTF-8; what stands in contexts is.
                    shown = path if path.isascii() else os.fsencode(path).decode("utf-8", "backslashreplace")
                    found.append((Entry(shown, status.st_size, path), status.st_mtime_ns))
                elif item.is_symlink():
                    self.skipped["symbolic link"] += 1
                elif item.is_dir(follow_symlinks=False):
                    if item.name not in self._skip:
                        pending.append((item.path, path + "/"))
                else:
                    self.skipped["special file"] += 1
        return found

    def read(self, entry: Entry) -> bytes | None:
        try:
            return (self._root / entry.key).read_bytes()
        except OSError:
            return None

    def attributes(self) -> Sequence[tuple[str, bytes]]:
        return _named(self, ".gitattributes")

    def ignores(self) -> Sequence[tuple[str, bytes]]:
        """All `.gitignore` as (folder, content), outermost first."""
        return _named(self, ".gitignore")

    def release(self) -> None:
        pass

    def close(self) -> None:
        pass


def _named(source: FolderSource, name: str) -> list[tuple[str, bytes]]:
    found = []
    for entry in source.entries:
        folder, _, last = entry.path.rpartition("/")
        if last == name:
            found.append((folder, source.read(entry) or b""))
    return sorted(found, key=lambda pair: (pair[0].count("/") if pair[0] else -1, pair[0]))


def stdlib() -> FolderSource:
    """The standard library's folder, without installed packages. Its URL names implementation and version, never a path."""
    root = Path(sysconfig.get_paths()["stdlib"])
    version = ".".join(map(str, sys.version_info[:3]))
    if not (root / "os.py").is_file():
        raise InputError(
            f"this interpreter keeps no standard library source in {root}; name a repository instead of stdlib"
        )
    name = f"stdlib:{sys.implementation.name}-{version}"
    return FolderSource(root, url=name, skip_folders=frozenset({"site-packages", "dist-packages"}))
