"""Addresses of an endpoint: looked up once, outside of every measured interval."""

from __future__ import annotations

import socket
from typing import Any

from gevent import get_hub

from loadgen.replay.wire.target import Target

Address = tuple[int, Any]  # (address family, what the socket connects to)

_known: dict[tuple[str, int], list[Address]] = {}


def resolve(target: Target) -> list[Address]:
    """All addresses of the target, in the resolver's order. Raises OSError. Blocks the calling greenlet at most once a target."""
    key = (target.host, target.port)
    if key not in _known:
        found = get_hub().resolver.getaddrinfo(target.host, target.port, 0, socket.SOCK_STREAM)
        _known[key] = [(int(family), where) for family, _, _, _, where in found]
    return list(_known[key])


def forget(target: Target) -> None:
    """Look the target up again next time: none of its addresses answered."""
    _known.pop((target.host, target.port), None)
