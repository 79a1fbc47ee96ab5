"""The parameters of synthetic sessions, as tables of quantiles: a JSON file that a person can read and change.

A `Table` is the inverse of a distribution function on the grid `GRID`; values between are interpolated. Tables keep
the tails that fitted curves lose; what no table holds is correlation between steps, of which three kinds are modelled:
a growth factor a session, the loops of a session (how often it turns to its human), and the context's part in
compactions.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_right
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path

import msgspec

from loadgen.errors import InputError

GRID = (
    0.0,
    0.01,
    0.02,
    0.05,
    0.1,
    0.2,
    0.3,
    0.4,
    0.5,
    0.6,
    0.7,
    0.8,
    0.9,
    0.95,
    0.98,
    0.99,
    0.995,
    0.999,
    1.0,
)
Table = list[float]

LATE = 10
"""Turns before this one load a task: what they append says little of the session's later growth."""

WINDOW = 172_000
"""Tokens up to which sessions with the usual window (200 K) let their prompt grow; who passes it has a wider one."""


def table(values: Sequence[float]) -> Table:
    """Quantiles of a sample on GRID, linear between order statistics; of nothing, zeros."""
    ordered = sorted(values)
    if not ordered:
        return [0.0] * len(GRID)
    found = []
    for q in GRID:
        place = q * (len(ordered) - 1)
        low = int(place)
        high = min(low + 1, len(ordered) - 1)
        found.append(round(ordered[low] + (ordered[high] - ordered[low]) * (place - low), 6))
    return found


def draw(quantiles: Table, rng: random.Random) -> float:
    """One value of a table's distribution. Wide steps are crossed geometrically: tails are nearer to Pareto than flat."""
    u = rng.random()
    place = min(max(bisect_right(GRID, u) - 1, 0), len(GRID) - 2)
    low, high = quantiles[place], quantiles[place + 1]
    share = (u - GRID[place]) / (GRID[place + 1] - GRID[place])
    if low > 0 and high > 1.5 * low:
        return low * math.exp(share * math.log(high / low))
    return low + share * (high - low)


class Agent(msgspec.Struct, kw_only=True):
    """One kind of agent. Lengths in tokens, times in seconds."""

    requests: Table
    first: Table  # the first prompt, the shared prefix included
    loop_end: Table  # by session: share of steps that go back to a human
    growth: Table  # by session: growth against the others'
    growth_by_length: float  # exponent of (requests / their median) in a session's growth
    append_tool: list[tuple[int, Table]]  # (from turn, tokens); from turn LATE on, over the session's growth
    append_human: list[tuple[int, Table]]
    output_tool: Table  # answer before a tool step
    output_final: Table  # answer before a human, and the last
    gap_tool_s: Table
    gap_human_s: Table
    break_tool: float  # share of tool steps whose prompt leaves the one before
    break_human: float
    second_human: float  # the same shares for the second turn, which follows a session's opening
    second_break: float
    breaks: list[
        tuple[int, int, int]
    ]  # (prompt before, tokens kept, prompt after), a sample of what was seen
    wide: float  # share of sessions whose window is wider than WINDOW
    compaction_at: list[
        tuple[float, float]
    ]  # (context from, chance a step), rising; of sessions within WINDOW
    compaction_at_wide: list[tuple[float, float]]
    compactions: list[tuple[int, int, int]]  # as breaks


class SubAgents(msgspec.Struct, kw_only=True):
    chance: float  # a step of the main agent that starts any
    fan_out: Table
    agent: Agent
    shared_prefix: int


class Profile(msgspec.Struct, kw_only=True):
    """A preset or a fit. `service`: seconds of a call = c0 + c1·output + c2·new/1000 + c3·prompt/1000."""

    version: int = 1
    name: str
    source: str
    block_size: int = 64
    shared_prefix: int  # tools and system, equal in all sessions
    service: tuple[float, float, float, float]
    main: Agent
    sub_agents: SubAgents | None = None


def load_profile(name: str) -> Profile:
    """A shipped preset by name, or a profile file. Raises InputError naming the presets when there is none."""
    folder = resources.files("loadgen.trace.synthesis") / "presets"
    shipped = sorted(
        entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json")
    )
    path = folder / f"{name}.json" if name in shipped else Path(name)
    if not path.is_file():
        raise InputError(f"no preset or profile file is called {name!r}; presets: {', '.join(shipped)}")
    try:
        found = msgspec.json.decode(path.read_bytes(), type=Profile)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"profile {name} cannot be read: {error}") from None
    _check(found, name)
    return found


def _check(profile: Profile, name: str) -> None:
    agents = [profile.main] + ([profile.sub_agents.agent] if profile.sub_agents else [])
    for agent in agents:
        tables = [
            (field.name, getattr(agent, field.name))
            for field in msgspec.structs.fields(agent)
            if field.type == Table
        ]
        for field, value in [
            *tables,
            *((name, entry[1]) for name in ("append_tool", "append_human") for entry in getattr(agent, name)),
        ]:
            if len(value) != len(GRID) or any(b < a for a, b in pairwise(value)):
                raise InputError(
                    f"profile {name}: `{field}` must be {len(GRID)} rising numbers, the quantiles {', '.join(map(str, GRID))}"
                )


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile as JSON, a value a line. Raises InputError when it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(msgspec.json.format(msgspec.json.encode(profile), indent=0) + b"\n")
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror or error}") from None
