"""The APIs by name."""

from __future__ import annotations

from loadgen.errors import InputError
from loadgen.replay.wire import chat, completions, messages, responses
from loadgen.replay.wire.api import Api

_APIS: dict[str, Api] = {module.NAME: module for module in (chat, completions, responses, messages)}
NAMES = tuple(_APIS)


def get(name: str) -> Api:
    """The API of that name. Raises InputError naming those that exist."""
    try:
        return _APIS[name]
    except KeyError:
        raise InputError(f"unknown API {name!r}; there are: {', '.join(NAMES)}") from None
