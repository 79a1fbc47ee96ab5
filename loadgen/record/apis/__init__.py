"""The APIs that agents speak, one module each, and which path belongs to which."""

from __future__ import annotations

from typing import cast

from loadgen.record.apis import chat, messages, responses
from loadgen.record.apis.base import Api

_BY_ENDING = {
    "/chat/completions": chat,
    "/responses": responses,
    "/messages": messages,
}


def api_of(method: str, path: str) -> Api | None:
    """The API of a request by the end of its path, or None when it asks no model."""
    if method != "POST":
        return None
    for ending, module in _BY_ENDING.items():
        if path.endswith(ending):
            return cast(Api, module)
    return None
