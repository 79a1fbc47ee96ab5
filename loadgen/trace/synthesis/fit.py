"""Fit a profile to a trace."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import numpy as np

from loadgen.errors import InputError
from loadgen.trace.features import Conversation, Step
from loadgen.trace.synthesis.appends import FROM, human_appends, tool_appends, tool_cells
from loadgen.trace.synthesis.lengths import fit_lengths
from loadgen.trace.synthesis.likeness import fit_likeness
from loadgen.trace.synthesis.loops import fit_loops
from loadgen.trace.synthesis.profile import Agent, Leave, Profile, SubAgents, table
from loadgen.trace.synthesis.untold import LEAST_CALLS
from loadgen.trace.synthesis.windows import fit_window, sample

MID_SESSION = 40_000
"""A first prompt of more tokens is the middle of a session that was cut, not a start."""

START = f"from their start (first prompt below {MID_SESSION:,} tokens)"

_EVENTS = 100
_BREAKS = 25  # that tell a chance: its relative error is then a fifth


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
    part: str = "",
) -> Profile:
    """A profile of the fresh main sessions and of their sub-agents.

    `shared_prefix`: tokens of tools and system that all sessions have in common; where ids are local to a session
    the trace cannot tell. `part`: words for what of the source `found` is, where it is not all. Raises InputError below 10 fresh sessions or 100 steps: quantiles would be guesses.
    """
    main = fresh(found)
    steps = sum(len(c.steps) for c in main)
    if len(main) < 10 or steps < 100:
        raise InputError(
            f"{part}{source} has {len(main)} sessions {START} with {steps} turns; a fit needs 10 and 100"
        )
    longest = max(c.steps[0].prompt for c in main)
    if shared_prefix > longest:
        raise InputError(
            f"a shared prefix of {shared_prefix:,} tokens is larger than any first prompt of {source}: "
            f"its longest has {longest:,}"
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
    later = [step for c in found for step in c.steps[1:]]
    lengths = fit_lengths(found)
    loops = fit_loops(found, FROM)
    cells = tool_cells(later)
    likeness = fit_likeness(found, cells, lengths.residuals, loops)
    final = [
        a
        for c in found
        for a, b in zip(c.steps, [*c.steps[1:], None], strict=True)
        if b is None or b.gap_kind == "human"
    ]
    inner = [a for c in found for a, b in pairwise(c.steps) if b.gap_kind != "human"]

    def gaps(human: bool) -> list[float]:
        return [s.gap_s for s in later if (s.gap_kind == "human") == human and s.gap_s is not None]

    return Agent(
        requests=lengths.requests,
        stops=lengths.stops,
        first=table([c.steps[0].prompt for c in found]),
        loop_end=loops.rates,
        loop_end_at=loops.factors,
        habits=likeness.habits,
        alike=likeness.alike,
        append_tool=tool_appends(later, cells, likeness.loadings),
        append_human=human_appends(later),
        output_tool=table([s.output for s in inner if s.output is not None]),
        output_final=table([s.output for s in final if s.output is not None]),
        gap_tool_s=table(gaps(False)),
        gap_human_s=table(gaps(True)),
        leaves=_leaves(found),
        window=fit_window(found),
    )


def _leaves(found: Sequence[Conversation]) -> list[Leave]:
    """By what the step before did and who came after it; what was never seen is left out."""
    seen: dict[tuple[str, bool], list[Step]] = {}
    for c in found:
        for a, b in pairwise(c.steps):
            seen.setdefault((a.kind, b.gap_kind == "human"), []).append(b)
    return [
        Leave(
            after=after,  # type: ignore[arg-type]  # a Step's kind
            gap="human" if human else "tool",
            chance=_chance(steps, [s.before for s in breaks]),
            events=sample(breaks, _EVENTS),
        )
        for (after, human), steps in sorted(seen.items())
        if (breaks := [s for s in steps if s.kind == "break"])
    ]


def _chance(steps: Sequence[Step], breaks: Sequence[int]) -> list[tuple[float, float]]:
    """By the prompt before: each step of the function holds about `_BREAKS` of the breaks."""
    parts = max(1, len(breaks) // _BREAKS)
    edges = np.unique(np.quantile(breaks, np.arange(1, parts) / parts).round())
    sizes = [s.before for s in steps]
    most = len(edges) + 1
    seen = np.bincount(np.searchsorted(edges, breaks, side="right"), minlength=most)
    tried = np.bincount(np.searchsorted(edges, sizes, side="right"), minlength=most)
    return [
        (float(edge), round(float(k / max(n, 1)), 6))
        for edge, k, n in zip([0.0, *edges], seen, tried, strict=True)
    ]


def _service(steps: Sequence[Step]) -> tuple[float, float, float, float]:
    """Least squares of a call's seconds on output, new and prompt tokens; the longest percent left out."""
    rows = [
        (1.0, s.output or 0, s.new / 1000, s.prompt / 1000, s.e2e_s) for s in steps if s.e2e_s is not None
    ]
    if len(rows) < LEAST_CALLS:
        return (1.34, 0.0148, 0.0157, 0.0143)
    data = np.array(rows, dtype=np.float64)
    data = data[data[:, 4] <= np.quantile(data[:, 4], 0.99)]
    solved = np.linalg.lstsq(data[:, :4], data[:, 4], rcond=None)[0]
    c = [round(max(0.0, float(v)), 6) for v in solved]
    return (c[0], c[1], c[2], c[3])
