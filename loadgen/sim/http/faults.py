"""Faults on demand: what a server, a proxy or a network may do to an answer.

A request asks for one with the header `X-Loadgen-Fault`: a kind, or a JSON object with its fields; a faults
file (`loadgen sim --faults FILE`, TOML, tables `[[fault]]`) deals them out by count. Times are in simulated seconds.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from loadgen.errors import InputError

Kind = Literal[
    "slow_start",  # no headers for `seconds`
    "stall",  # silence of `seconds` behind `after` tokens
    "reset",  # TCP reset behind `after` tokens
    "truncated",  # connection closed in the middle of a chunk behind `after` tokens
    "malformed",  # an event that is no JSON behind `after` tokens
    "error",  # an error event in the stream behind `after` tokens
    "overloaded",  # 429 with Retry-After of `seconds`
    "unavailable",  # 503
    "empty",  # 200 and no token at all
    "wrong_usage",  # usage that is 1 token off in every figure
    "burst",  # tokens are held and come together every `seconds`
]


class Fault(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    kind: Kind
    after: int = 1  # tokens
    seconds: float = 1.0
    every: int = 1  # of the generations, the file's rule takes each n-th
    skip: int = 0  # and leaves out so many at the start


class Rules:
    """Rules of a faults file, counted over the generations of this server."""

    def __init__(self, rules: list[Fault] | None = None) -> None:
        self._rules = rules or []
        self._seen = 0

    def next(self, header: str | None) -> Fault | None:
        """The fault of the next generation. Raises ValueError for a header that makes no sense."""
        if header:
            return _from_header(header)
        self._seen += 1
        for rule in self._rules:
            turn = self._seen - rule.skip
            if turn > 0 and turn % rule.every == 0:
                return rule
        return None


def _from_header(header: str) -> Fault:
    try:
        if header.lstrip().startswith("{"):
            return msgspec.json.decode(header, type=Fault)
        return msgspec.convert({"kind": header.strip()}, type=Fault)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise ValueError(str(error)) from None


class _File(msgspec.Struct, forbid_unknown_fields=True):
    fault: list[Fault]


def load(path: Path) -> Rules:
    """Read a faults file. Raises InputError."""
    try:
        rules = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), type=_File).fault
    except OSError as error:
        raise InputError(f"cannot read faults file {path}: {error.strerror}") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InputError(f"faults file {path}: {error}") from None
    for rule in rules:
        if rule.every < 1 or rule.after < 0 or rule.skip < 0 or not 0 <= rule.seconds < 1e6:
            raise InputError(
                f"faults file {path}: {rule.kind}: every must be 1 or more, after, skip and seconds not negative"
            )
    return Rules(rules)
