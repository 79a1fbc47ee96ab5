"""Where documents come from: one interface for git repositories and for folders."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple, Protocol, runtime_checkable


class Entry(NamedTuple):
    """One file that a source offers. `key` is how the source finds its bytes again."""

    path: str  # relative, with forward slashes
    size: int  # bytes
    key: str


class Source(Protocol):
    """Files at one commit, or in a folder.

    `entries` are sorted by path (code points), so that they are the same on every machine. `skipped` counts what was
    never offered, by reason: submodules, symlinks, missing objects. `read` may be called from several threads.
    """

    @property
    def url(self) -> str:
        """As the user gave it, without credentials."""
        ...

    @property
    def commit(self) -> str | None: ...
    @property
    def identity(self) -> str:
        """What tells on this machine whether the files are still the same: the commit, or names, sizes and times."""
        ...

    @property
    def entries(self) -> Sequence[Entry]: ...
    @property
    def skipped(self) -> Counter[str]: ...
    def read(self, entry: Entry) -> bytes | None:
        """The file's bytes; None when its object is missing (a partial clone) or it has gone."""
        ...

    def attributes(self) -> Sequence[tuple[str, bytes]]:
        """All `.gitattributes` as (folder, content), outermost first."""
        ...

    def release(self) -> None:
        """Close what two processes cannot share. The next read opens it again, in each of them its own."""
        ...

    def close(self) -> None: ...


@runtime_checkable
class History(Protocol):
    """A source that knows what came before."""

    def commits(self, limit: int) -> list[str]:
        """Up to `limit` commits without merges, newest first."""
        ...

    def change(self, commit: str) -> str | None:
        """A commit's message and patch, without names and addresses; None when objects are missing."""
        ...


_CREDENTIALS = re.compile(r"^([a-z][a-z0-9+.-]*://)[^/@]*@", re.IGNORECASE)


def without_credentials(url: str) -> str:
    """`https://user:secret@host/x` as `https://host/x`; everything else unchanged."""
    return _CREDENTIALS.sub(r"\1", url)
