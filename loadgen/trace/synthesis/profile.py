"""The parameters of synthetic sessions, as tables of quantiles: a JSON file that a person can read and change.

A `Table` is the inverse of a distribution function on the grid `GRID`; values between are interpolated. Tables keep
the tails that fitted curves lose. What no table holds is dependence; these kinds are modelled, each estimated by a fit:
habits that go together in a session, tool appends that resemble those before and the answer they hold, the context's
part in stopping, the window at which a session compacts, and prompts that are left because of what came before.
"""

from __future__ import annotations

import math
import random
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Literal

import msgspec

from loadgen.errors import InputError
from loadgen.outfile import write_file
from loadgen.trace.synthesis.limits import fault

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
    0.9995,
    1.0,
)
Table = list[float]

VERSION = 2

HABITS = ("requests", "first", "loop_end", "growth")
"""What a session draws once, together: the order of the rows and columns of `Agent.habits`."""


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


def value(quantiles: Table, share: float) -> float:
    """The quantile of a share in [0, 1]. Wide steps are crossed geometrically: tails are nearer to Pareto than flat."""
    place = min(max(bisect_right(GRID, share) - 1, 0), len(GRID) - 2)
    low, high = quantiles[place], quantiles[place + 1]
    within = (share - GRID[place]) / (GRID[place + 1] - GRID[place])
    if _wide(low, high):
        return low * math.exp(within * math.log(high / low))
    return low + within * (high - low)


def _wide(low: float, high: float) -> bool:
    """Whether a step is crossed geometrically; from next to nothing on (a ratio that no float holds) it cannot be."""
    return low > 0 and high > 1.5 * low and high / low < math.inf


def share_below(quantiles: Table, wanted: float) -> float:
    """The inverse of `value`: the share of a table's distribution below a number."""
    if wanted <= quantiles[0]:
        return 0.0
    if wanted >= quantiles[-1]:
        return 1.0
    place = bisect_left(quantiles, wanted) - 1
    low, high = quantiles[place], quantiles[place + 1]
    within = (
        math.log(wanted / low) / math.log(high / low) if _wide(low, high) else (wanted - low) / (high - low)
    )
    return GRID[place] + within * (GRID[place + 1] - GRID[place])


def draw(quantiles: Table, rng: random.Random) -> float:
    """One value of a table's distribution."""
    return value(quantiles, rng.random())


class Alike(msgspec.Struct, kw_only=True):
    """How the tool appends of a session resemble one another, in normal scores: of their table's share, so that each keeps
    its values.

    Score of step t = growth · (G - level) + run · A(t) + answer · B(t) + rest. G is the session's habit `growth`, A(t) an
    autoregression of order one with the factor `decay` a step, B(t) the score of the answer that the append holds;
    `growth`, `run` and `level` are the append table's.
    """

    decay: float
    answer: float


class Append(msgspec.Struct, kw_only=True):
    """What a step appends, in tokens, from a turn and from a prompt on. `growth`, `run`: what its score has of the session's
    habit and of the steps before. `level`: the mean habit of the steps that the table was made of: slow sessions last
    longer, and late tables are mostly theirs.
    """

    turn: int
    prompt: int = 0
    tokens: Table
    growth: float = 0.0
    run: float = 0.0
    level: float = 0.0


class Leave(msgspec.Struct, kw_only=True):
    """Prompts that leave the one before, of steps with this gap after a step of this kind.

    `chance`: (prompt before from, share of the steps). `events`: a sample of (prompt before, tokens kept, prompt after),
    by size.
    """

    after: Literal["first", "extend", "break", "compaction"]
    gap: Literal["tool", "human"]
    chance: list[tuple[float, float]]
    events: list[tuple[int, int, int]]


class Window(msgspec.Struct, kw_only=True):
    """Where sessions compact, each time at about the same prompt. `at`: (prompt, share of sessions whose window is at most
    that), rising, with a line between; where the last share is below 1 the rest never compact for size. `spread`: standard deviation of the logarithm from one time to the next.
    `early_*`: chance a step to compact before. `events`: as Leave's.
    """

    at: list[tuple[float, float]]
    spread: float
    early_tool: float
    early_human: float
    events: list[tuple[int, int, int]]


class Agent(msgspec.Struct, kw_only=True):
    """One kind of agent. Lengths in tokens, times in seconds."""

    requests: Table  # where contexts play no part in stopping
    stops: list[tuple[float, float]]  # (prompt from, factor on the chance to stop), rising
    first: Table  # the first prompt, the shared prefix included
    loop_end: Table  # by session: share of steps that go back to a human
    loop_end_at: list[tuple[float, float]]  # (turn from, factor on that share)
    habits: list[list[float]]  # correlations of the normal scores of HABITS
    alike: Alike
    append_tool: list[Append]  # by turn, then by prompt
    append_human: list[Append]
    output_tool: Table  # answer before a tool step
    output_final: Table  # answer before a human, and the last
    gap_tool_s: Table
    gap_human_s: Table
    leaves: list[Leave]
    window: Window


class SubAgents(msgspec.Struct, kw_only=True):
    chance: float  # a step of the main agent that starts any
    fan_out: Table
    agent: Agent
    shared_prefix: int


class Profile(msgspec.Struct, kw_only=True):
    """A preset or a fit. `service`: seconds of a call = c0 + c1·output + c2·new/1000 + c3·prompt/1000."""

    version: int = VERSION
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
        content = path.read_bytes()
        version = msgspec.json.decode(content, type=_Version).version
        if version != VERSION:
            raise InputError(
                f"profile {name} is of version {version}, this loadgen reads version {VERSION}: "
                "fit it again with `loadgen trace fit`"
            )
        found = msgspec.json.decode(content, type=Profile)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"profile {name} cannot be read: {error}") from None
    _check(found, name)
    return found


class _Version(msgspec.Struct):
    version: int


def _check(profile: Profile, name: str) -> None:
    """What the types do not say. Raises InputError naming the profile (its file) and the field."""
    found = fault(msgspec.to_builtins(profile))
    if found is not None:
        raise InputError(f"profile {name}: {found}")
    subs = profile.sub_agents
    prefixes = [("shared_prefix", profile.shared_prefix, profile.main)]
    if subs is not None:
        prefixes.append(("sub_agents.shared_prefix", subs.shared_prefix, subs.agent))
    if subs is not None:
        _check_table("fan_out", subs.fan_out, name)
    for _, _, agent in prefixes:
        for field in msgspec.structs.fields(agent):
            if field.type == Table:
                _check_table(field.name, getattr(agent, field.name), name)
        for key in ("append_tool", "append_human"):
            steps = getattr(agent, key)
            if not steps:
                raise InputError(f"profile {name}: `{key}` is empty; give it one table at least")
            for entry in steps:
                _check_table(key, entry.tokens, name)
        _check_dependence(agent, name)
    for where, tokens, agent in prefixes:
        if tokens > agent.first[-1]:
            raise InputError(
                f"profile {name}: `{where}` is {tokens} tokens, and no first prompt has more than {agent.first[-1]:g}"
            )


def _check_table(field: str, quantiles: Table, name: str) -> None:
    if len(quantiles) != len(GRID) or any(b < a for a, b in pairwise(quantiles)):
        raise InputError(
            f"profile {name}: `{field}` must be {len(GRID)} rising numbers, the quantiles {', '.join(map(str, GRID))}"
        )


def _check_dependence(agent: Agent, name: str) -> None:
    """What `_check` does, of windows, stops, habits and appends."""
    at = [(0.0, 0.0), *agent.window.at, (math.inf, 1.0)]
    if any(b[0] <= a[0] or b[1] < a[1] for a, b in pairwise(at)):
        raise InputError(
            f"profile {name}: `window.at` must be rising prompts above 0 with rising shares in [0, 1]"
        )
    if any(factor <= 0 for _, factor in agent.stops):
        raise InputError(f"profile {name}: the factors of `stops` must be above 0")
    if not _correlations(agent.habits):
        raise InputError(
            f"profile {name}: `habits` must be the correlation matrix of {', '.join(HABITS)}: "
            "symmetric, ones on the diagonal, positive definite"
        )
    alike = agent.alike
    most = max(append.growth**2 + append.run**2 for append in agent.append_tool) + alike.answer**2
    if most > 1 or not 0 <= alike.decay < 1:
        raise InputError(
            f"profile {name}: the squares of `growth` and `run` of each of `append_tool` and of `answer` must sum to at most 1, "
            "and `decay` be in [0, 1)"
        )


def _correlations(rows: list[list[float]]) -> bool:
    size = range(len(HABITS))
    if len(rows) != len(HABITS) or any(len(row) != len(HABITS) for row in rows):
        return False
    if any(rows[i][i] != 1 or rows[i][j] != rows[j][i] for i in size for j in size):
        return False
    return cholesky(rows) is not None


def cholesky(rows: list[list[float]]) -> list[list[float]] | None:
    """The lower triangle L with L·Lᵀ = rows; None where the matrix is not positive definite."""
    lower = [[0.0] * len(rows) for _ in rows]
    for i in range(len(rows)):
        for j in range(i + 1):
            rest = rows[i][j] - sum(lower[i][k] * lower[j][k] for k in range(j))
            if i != j:
                lower[i][j] = rest / lower[j][j]
            elif rest <= 0:
                return None
            else:
                lower[i][i] = math.sqrt(rest)
    return lower


def save_profile(profile: Profile, path: Path) -> None:
    """Write a profile as JSON, a value a line. Raises InputError when it cannot be written, or could not be read again."""
    _check(profile, str(path))
    write_file(path, msgspec.json.format(msgspec.json.encode(profile), indent=0) + b"\n")
