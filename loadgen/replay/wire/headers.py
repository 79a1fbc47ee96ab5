"""Headers that a user or an API adds to every request, checked before anything is sent."""

from __future__ import annotations

import re
from collections.abc import Iterable

from loadgen.errors import InputError
from loadgen.replay.wire import messages

Header = tuple[str, str]

_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_OURS = frozenset(
    {"host", "content-length", "content-type", "transfer-encoding", "accept-encoding", "connection", "expect"}
)


def credentials(key: str | None, *, scheme: str = "Bearer", api: str = "chat") -> tuple[Header, ...]:
    """Headers that carry the key: `Authorization: SCHEME KEY` (`Bearer`, `BackendAI`), and what messages wants beside.

    Raises InputError, without the key in its words, for one that no header can hold.
    """
    found: tuple[Header, ...] = (("anthropic-version", "2023-06-01"),) if api == messages.NAME else ()
    if not key:
        return found
    if not key.isascii() or any(ord(c) < 33 or ord(c) == 127 for c in key):
        raise InputError("the API key holds a blank, a line end or a character that no header can carry")
    if not _NAME.fullmatch(scheme):
        raise InputError(f"{scheme!r} is not an authorization scheme; give one like Bearer or BackendAI")
    found = (("Authorization", f"{scheme} {key}"), *found)
    return (*found, ("x-api-key", key)) if api == messages.NAME else found


def parse(lines: Iterable[str]) -> tuple[Header, ...]:
    """Headers from lines `Name: value`. Raises InputError for what is none, and for those that the client sets itself."""
    found = []
    for line in lines:
        name, colon, value = line.partition(":")
        name, value = name.strip(), value.strip()
        if not colon or not _NAME.fullmatch(name) or not value.isprintable() or not value.isascii():
            raise InputError(f"a header must look like 'Name: value', and {name!r} does not")
        if name.lower() in _OURS:
            raise InputError(f"the header {name} is the client's own and cannot be set")
        found.append((name, value))
    return tuple(found)
