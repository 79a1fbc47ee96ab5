"""Fit a profile to a trace."""

from __future__ import annotations

import math
import random
import statistics
import sys
from collections.abc import Sequence

import numpy as np

from loadgen.errors import InputError
from loadgen.trace.features import Conversation, Step
from loadgen.trace.synthesis.profile import LATE, WINDOW, Agent, Profile, SubAgents, table

MID_SESSION = 40_000
"""A first prompt of more tokens is the middle of a session that was cut, not a start."""

_APPEND_FROM = (1, 2, 3, 4, 5, LATE, 20)
_EVENTS = 200
_ENOUGH = 50
_NEAR = 140_000  # a session that came so far was about to meet its window
_CONTEXT_STEPS = (
    0,
    40_000,
    80_000,
    110_000,
    130_000,
    140_000,
    150_000,
    160_000,
    WINDOW,
    200_000,
    300_000,
    500_000,
)


def fresh(found: Sequence[Conversation]) -> list[Conversation]:
    """Main sessions that were recorded from their start."""
    return [c for c in found if c.session.parent is None and c.steps and c.steps[0].prompt < MID_SESSION]


def halves(found: Sequence[Conversation], seed: int) -> tuple[list[Conversation], list[Conversation]]:
    """Two random halves of the families, for fitting and for checking."""
    roots = [c for c in found if c.session.parent is None]
    random.Random(seed).shuffle(roots)
    first = {c.session.id for c in roots[: len(roots) // 2]}

    def in_first(c: Conversation) -> bool:
        return (c.session.parent.session if c.session.parent is not None else c.session.id) in first

    return [c for c in found if in_first(c)], [c for c in found if not in_first(c)]


def fit(
    found: Sequence[Conversation],
    *,
    name: str,
    source: str,
    shared_prefix: int = 0,
    block_size: int | None = None,
) -> Profile:
    """A profile of the fresh main sessions and of their sub-agents.

    `shared_prefix`: tokens of tools and system that all sessions have in common; where ids are local to a session
    the trace cannot tell. Raises InputError below 10 fresh sessions or 100 steps: quantiles would be guesses.
    """
    main = fresh(found)
    steps = sum(len(c.steps) for c in main)
    if len(main) < 10 or steps < 100:
        raise InputError(
            f"{source} has {len(main)} sessions from their start with {steps} turns; a fit needs 10 and 100"
        )
    names = {c.session.id for c in main}
    subs = [
        c for c in found if c.session.parent is not None and c.session.parent.session in names and c.steps
    ]
    sub_agents = None
    if len(subs) >= 10:
        fans = [
            len([1 for turn, _ in c.children if turn == at])
            for c in main
            for at in {turn for turn, _ in c.children}
        ]
        sub_agents = SubAgents(
            chance=len(fans) / steps,
            fan_out=table(fans),
            agent=_agent(subs),
            shared_prefix=min(_lowest(subs), 8_700),
        )
    return Profile(
        name=name,
        source=f"{source}: {len(main)} sessions, {steps} turns, {len(subs)} sub-agents",
        block_size=block_size if block_size and block_size > 1 else 64,
        shared_prefix=shared_prefix,
        service=_service([step for c in (*main, *subs) for step in c.steps]),
        main=_agent(main),
        sub_agents=sub_agents,
    )


def _lowest(found: Sequence[Conversation]) -> int:
    return min(c.steps[0].prompt for c in found)


def _agent(found: Sequence[Conversation]) -> Agent:
    later = [(c, step) for c in found for step in c.steps[1:]]
    tool = [step for _, step in later if step.gap_kind != "human"]
    human = [step for _, step in later if step.gap_kind == "human"]
    growth, exponent, factors = _growth(found)
    compactions = [step for _, step in later if step.kind == "compaction"]
    breaks = [step for _, step in later if step.kind == "break"]

    def appended(chosen: Sequence[tuple[Conversation, Step]]) -> list[float]:
        return [
            max(0, s.prompt - s.before)
            / (factors[c.session.id] if s.index >= LATE and s.gap_kind != "human" else 1.0)
            for c, s in chosen
            if s.kind == "extend"
        ]

    def appends(human: bool, begins: Sequence[int]) -> list[tuple[int, list[float]]]:
        rows: list[tuple[int, list[float]]] = []
        for begin, end in zip(begins, [*begins[1:], sys.maxsize], strict=True):
            inside = [(c, s) for c, s in later if (s.gap_kind == "human") == human and begin <= s.index < end]
            if inside or not rows:
                rows.append((begin, table(appended(inside))))
        return rows

    largest = {c.session.id: max(s.prompt for s in c.steps) for c in found}
    wide = {name for name, tokens in largest.items() if tokens > WINDOW}
    final = [
        a
        for c in found
        for a, b in zip(c.steps, [*c.steps[1:], None], strict=True)
        if b is None or b.gap_kind == "human"
    ]
    inner = [a for c in found for a, b in zip(c.steps, c.steps[1:], strict=False) if b.gap_kind != "human"]
    return Agent(
        requests=table([len(c.steps) for c in found]),
        first=table([c.steps[0].prompt for c in found]),
        loop_end=table(
            [sum(s.gap_kind == "human" for s in c.steps[1:]) / max(len(c.steps) - 1, 1) for c in found]
        ),
        growth=growth,
        growth_by_length=exponent,
        append_tool=appends(False, _APPEND_FROM),
        append_human=appends(True, (1, LATE)),
        output_tool=table([s.output for s in inner if s.output is not None]),
        output_final=table([s.output for s in final if s.output is not None]),
        gap_tool_s=table([s.gap_s for s in tool if s.gap_s is not None]),
        gap_human_s=table([s.gap_s for s in human if s.gap_s is not None]),
        break_tool=_share([s.kind == "break" for s in tool if s.index > 1]),
        break_human=_share([s.kind == "break" for s in human if s.index > 1]),
        second_human=_share([s.gap_kind == "human" for _, s in later if s.index == 1]),
        second_break=_share([s.kind == "break" for _, s in later if s.index == 1]),
        breaks=_events(breaks),
        wide=len(wide) / max(sum(tokens >= _NEAR for tokens in largest.values()), 1),
        compaction_at=_hazard([s for c, s in later if c.session.id not in wide]),
        compaction_at_wide=_hazard([s for c, s in later if c.session.id in wide]),
        compactions=_events(compactions),
    )


def _share(flags: Sequence[bool]) -> float:
    return sum(flags) / max(len(flags), 1)


def _events(steps: Sequence[Step]) -> list[tuple[int, int, int]]:
    """A sample of at most `_EVENTS`, by size of the prompt before."""
    rows = sorted((s.before, s.kept, s.prompt) for s in steps)
    return rows if len(rows) <= _EVENTS else [rows[i * len(rows) // _EVENTS] for i in range(_EVENTS)]


def _growth(found: Sequence[Conversation]) -> tuple[list[float], float, dict[str, float]]:
    """Sessions differ in how fast they grow, long ones grow slower: factor = residual · (requests / median)^exponent.

    The factor is the session's mean late tool append over all sessions'; appends are fitted after division by it.
    """
    means: dict[str, tuple[int, float]] = {}
    for c in found:
        grown = [
            min(s.prompt - s.before, 20_000)
            for s in c.steps[LATE:]
            if s.kind == "extend" and s.gap_kind != "human" and s.prompt >= s.before
        ]
        if len(grown) >= 10:
            means[c.session.id] = (len(c.steps), max(statistics.fmean(grown), 1.0))
    factors = dict.fromkeys((c.session.id for c in found), 1.0)
    if len(means) < 10:
        return table([1.0]), 0.0, factors
    overall = statistics.fmean(mean for _, mean in means.values())
    middle = statistics.median(len(c.steps) for c in found)
    x = np.log([n / middle for n, _ in means.values()])
    y = np.log([mean / overall for _, mean in means.values()])
    exponent = float(np.polyfit(x, y, 1)[0])
    residuals = []
    for name, (n, mean) in means.items():
        factors[name] = mean / overall
        residuals.append(factors[name] / (n / middle) ** exponent)
    return table(residuals), round(exponent, 4), factors


def _hazard(steps: Sequence[Step]) -> list[tuple[float, float]]:
    """Chance of a compaction a step, by the size of the prompt before it; few steps cannot say that it falls."""
    found: list[tuple[float, float]] = []
    for low, high in zip(_CONTEXT_STEPS, [*_CONTEXT_STEPS[1:], math.inf], strict=True):
        inside = [s for s in steps if low <= s.before < high]
        chance = sum(s.kind == "compaction" for s in inside) / len(inside) if inside else 0.0
        if len(inside) < _ENOUGH and found:
            chance = max(chance, found[-1][1])
        found.append((float(low), round(chance, 6)))
    return found


def _service(steps: Sequence[Step]) -> tuple[float, float, float, float]:
    """Least squares of a call's seconds on output, new and prompt tokens; the longest percent left out."""
    rows = [
        (1.0, s.output or 0, s.new / 1000, s.prompt / 1000, s.e2e_s) for s in steps if s.e2e_s is not None
    ]
    if len(rows) < 30:
        return (1.34, 0.0148, 0.0157, 0.0143)
    data = np.array(rows, dtype=np.float64)
    data = data[data[:, 4] <= np.quantile(data[:, 4], 0.99)]
    solved = np.linalg.lstsq(data[:, :4], data[:, 4], rcond=None)[0]
    c = [round(max(0.0, float(v)), 6) for v in solved]
    return (c[0], c[1], c[2], c[3])
