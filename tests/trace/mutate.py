"""Damage a file: the material of the robustness tests and of the fuzz target."""

from __future__ import annotations

import random

import orjson

ODD: tuple[object, ...] = (
    None,
    True,
    -1,
    0,
    1.5,
    2**70 % 2**63,
    -(2**62),
    1e300,
    "",
    "x",
    "\U0001f600",
    "9" * 400,
    [],
    {},
    [[]],
    [None],
    {"": None},
)


def damage(data: bytes, seed: int) -> bytes:
    """The file with a few values replaced, dropped or repeated; one in four also loses bytes anywhere."""
    rng = random.Random(seed)
    rows = data.split(b"\n")
    out = []
    for row in rows:
        try:
            value = orjson.loads(row)
        except orjson.JSONDecodeError:
            out.append(row)
            continue
        for _ in range(rng.choice((0, 1, 1, 3))):
            value = _change(value, rng)
        out.extend([orjson.dumps(value)] * rng.choice((1, 1, 1, 2)))
    if rng.random() < 0.2:
        rng.shuffle(out)
    damaged = b"\n".join(out)
    if rng.random() < 0.25 and damaged:
        at = rng.randrange(len(damaged))
        damaged = (
            damaged[:at]
            + rng.choice((b"", b"\x00\x00", b"\xff", b"{", b"\n"))
            + damaged[at + rng.randrange(9) :]
        )
    return damaged


def _change(value: object, rng: random.Random) -> object:
    """Replace, drop or repeat one value somewhere inside."""
    if isinstance(value, dict) and value and rng.random() < 0.9:
        key = rng.choice(list(value))
        if rng.random() < 0.15:
            return {k: v for k, v in value.items() if k != key}
        return {**value, key: _change(value[key], rng)}
    if isinstance(value, list) and value and rng.random() < 0.9:
        at = rng.randrange(len(value))
        if rng.random() < 0.15:
            return value[:at] + value[at + 1 :]
        return [
            *value[:at],
            _change(value[at], rng),
            *(value[at:] if rng.random() < 0.1 else value[at + 1 :]),
        ]
    return rng.choice(ODD)
