"""What the user should know about a build, kept beside its contexts."""

from __future__ import annotations

from pathlib import Path

import msgspec

from loadgen.corpus.context import ContextSet
from loadgen.corpus.library import Library
from loadgen.errors import InputError

ACCOUNT = "account.json"


class LeftOut(msgspec.Struct):
    """Files that one rule left out."""

    reason: str
    files: int
    bytes: int


class Outcome(msgspec.Struct, kw_only=True):
    """`account.json`. Rules on content are applied when a file is read, so only to the `read` ones and those left out by them."""

    layout: str
    remarks: list[str]
    offered: int  # files in the repository or folder
    used: int  # files in contexts
    used_bytes: int
    spare: int  # files that would do and were not needed
    left_out: list[LeftOut]


def outcome(library: Library, found: ContextSet, used: str, wanted: str) -> Outcome:
    """Sum up a build: `wanted` is the layout that the recipe asked for, `used` the one that was built."""
    account = library.account
    paths = {path for context in found.contexts for path in context.files}
    remarks = []
    if wanted == "auto" and used == "rotated":
        remarks.append(
            "too little text for distinct contexts: all hold the same files, each in another order (layout rotated)"
        )
    remarks += [f"{note}: {files:,} files" for note, files in sorted(account.notes.items())]
    if library.broken_specials:
        remarks.append(f"strings that are special tokens, broken by a space: {library.broken_specials:,}")
    return Outcome(
        layout=used,
        remarks=remarks,
        offered=account.offered,
        used=len(paths),
        used_bytes=sum(account.taken[path].bytes for path in paths if path in account.taken),
        spare=sum(
            entry.path not in paths and entry.path not in account.left_out for entry in library.entries
        ),
        left_out=[LeftOut(*reason) for reason in account.reasons()],
    )


def read_outcome(folder: Path) -> Outcome:
    """Read a folder's `account.json`."""
    path = folder / ACCOUNT
    try:
        return msgspec.json.decode(path.read_bytes(), type=Outcome)
    except (OSError, msgspec.DecodeError):
        raise InputError(f"{path} is missing or damaged; build the contexts again") from None
