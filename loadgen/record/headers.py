"""Which headers a reverse proxy passes on (RFC 9110, section 7.6.1): all but those of one hop."""

from __future__ import annotations

from collections.abc import Iterable

HOP_BY_HOP = frozenset(
    {
        "connection",
        "keep-alive",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    }
)

Headers = list[tuple[str, str]]


def decode(raw: Iterable[tuple[bytes, bytes]]) -> Headers:
    """Header lines as text, in their order and spelling, duplicates kept; what is no UTF-8 becomes U+FFFD."""
    return [(name.decode("latin-1"), value.decode("utf-8", "replace")) for name, value in raw]


def end_to_end(headers: Headers, *, also: frozenset[str] = frozenset()) -> Headers:
    """The headers to pass on: without those of one hop, those that `Connection` names, and `also` (lower case)."""
    named = {
        word.strip().lower()
        for name, value in headers
        if name.lower() == "connection"
        for word in value.split(",")
    }
    dropped = HOP_BY_HOP | named | also
    return [(name, value) for name, value in headers if name.lower() not in dropped]


def one_spelling(headers: Headers) -> Headers:
    """Repeated headers under the spelling of the first; aiohttp's client would keep only the last of two spellings."""
    spelling: dict[str, str] = {}
    return [(spelling.setdefault(name.lower(), name), value) for name, value in headers]


def first(headers: Headers, name: str) -> str | None:
    """Value of the first header called `name` (lower case)."""
    return next((value for key, value in headers if key.lower() == name), None)
