"""What a synthetic session draws once, and what it remembers from turn to turn."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist
from typing import TypeVar

from loadgen.trace.synthesis.profile import Agent, Append, Table, Window, cholesky, share_below, value

T = TypeVar("T")
NORMAL = NormalDist()
_CERTAIN = 1e-12  # a share that is taken for 0, whose logarithm would be endless


def step_at(steps: Sequence[tuple[float, T]], place: float) -> T | None:
    """The value of the last step at or before a place; null before the first."""
    found: T | None = None
    for begin, held in steps:
        if place < begin:
            break
        found = held
    return found


def append_at(appends: Sequence[Append], turn: int, prompt: int) -> Append | None:
    """The last table of the last turn at or before this that holds for the prompt."""
    found: Append | None = None
    for append in appends:
        if append.turn <= turn and (append.prompt <= prompt or found is None or append.turn != found.turn):
            found = append
    return found


@dataclass(frozen=True, slots=True)
class Habits:
    """Of one session. `patience`: the cumulative hazard of stopping that it bears; `first`: tokens of the first prompt;
    `loop_end`: share of steps that go back to its human; `growth`: the normal score of its tool appends.
    """

    patience: float
    first: float
    loop_end: float
    growth: float


def draw_habits(agent: Agent, rng: random.Random) -> Habits:
    """Normal scores with the profile's correlations, each turned into its own table's value."""
    lower = cholesky(agent.habits)
    assert lower is not None  # checked when the profile was loaded or fitted
    free = [rng.gauss(0, 1) for _ in lower]
    requests, first, loop_end, growth = (sum(a * b for a, b in zip(row, free, strict=True)) for row in lower)
    return Habits(
        patience=-math.log(max(NORMAL.cdf(-requests), _CERTAIN)),
        first=value(agent.first, NORMAL.cdf(first)),
        loop_end=value(agent.loop_end, NORMAL.cdf(loop_end)),
        growth=growth,
    )


class Stop:
    """When a session ends: proportional hazards (Cox 1972).

    The hazard of the n-th turn is what the table of lengths says times a factor of the prompt's size; the session ends
    when the sum reaches its patience. With all factors 1 lengths follow the table.
    """

    def __init__(self, requests: Table, factors: Sequence[tuple[float, float]], patience: float) -> None:
        self._requests, self._factors, self._left = requests, factors, patience
        self._turns = 0
        self._before = 0.0

    def after(self, prompt: int) -> bool:
        """Whether the next turn, with this prompt, is the last."""
        self._turns += 1
        below = share_below(self._requests, self._turns + 0.5)
        if below >= 1:
            return True
        hazard = -math.log1p(-below)
        factor = step_at(self._factors, prompt)
        self._left -= (hazard - self._before) * (1.0 if factor is None else factor)
        self._before = hazard
        return self._left <= 0


class Limit:
    """The prompt at which a session compacts, drawn anew around its own after each time."""

    def __init__(self, window: Window, first: int, rng: random.Random) -> None:
        """`first`: a session that is met with so large a prompt has a larger window."""
        self._window, self._rng = window, rng
        at = [(0.0, 0.0), *window.at]
        below = _between(at, first + 1)
        share = below + rng.random() * (1 - below)
        self._own = _between([(b, a) for a, b in at], share) if share < at[-1][1] else math.inf
        self._now = self._own

    def reached(self, prompt: int, human: bool) -> bool:
        """Whether the session compacts instead of adding to this prompt."""
        early = self._window.early_human if human else self._window.early_tool
        if prompt >= self._now:
            self._now = self._own * math.exp(self._rng.gauss(0, self._window.spread))
            return True
        return self._rng.random() < early


def _between(points: Sequence[tuple[float, float]], place: float) -> float:
    """On the line through rising points; beyond the last, its value."""
    for (a, low), (b, high) in pairwise(points):
        if place < b:
            return low + (high - low) * (place - a) / (b - a)
    return points[-1][1]


class Appends:
    """Tokens that tool steps append, from their tables and correlated as `Alike` says."""

    def __init__(self, agent: Agent, growth: float, rng: random.Random) -> None:
        self._tables = agent.append_tool
        self._alike, self._growth, self._rng = agent.alike, growth, rng
        self._run = rng.gauss(0, 1)

    def tokens(self, turn: int, prompt: int, answer: float) -> float:
        """`answer`: the normal score of the answer that the append holds."""
        alike, free = self._alike, self._rng.gauss
        self._run = alike.decay * self._run + math.sqrt(1 - alike.decay**2) * free(0, 1)
        append = append_at(self._tables, turn, prompt)
        if append is None:
            return 0.0
        rest = max(0.0, 1 - append.growth**2 - append.run**2 - alike.answer**2)
        score = (
            append.growth * (self._growth - append.level)
            + append.run * self._run
            + alike.answer * answer
            + math.sqrt(rest) * free(0, 1)
        )
        return value(append.tokens, NORMAL.cdf(score))
