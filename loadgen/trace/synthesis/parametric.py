"""Sessions from a profile: content-free, to be filled with text of a corpus (`loadgen trace fill`).

A session is a run of steps. Each appends what a tool or a human said, leaves the last prompt at some place, or
compacts it, as the profile and the session's habits say. All main sessions begin with the same prefix, sub-agents
with another.
"""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Sequence
from pathlib import Path

from loadgen.errors import InputError
from loadgen.trace.model import Blocks, Gap, Header, Parent, Seen, Session, Source, Turn
from loadgen.trace.synthesis.habits import NORMAL, Appends, Limit, Stop, append_at, draw_habits, step_at
from loadgen.trace.synthesis.profile import Agent, Leave, Profile, draw, value
from loadgen.trace.timeline import Caps
from loadgen.trace.writer import TraceWriter

_NEAREST = 20
MOST = 20_000  # steps of one session
_CEILING = 4_000_000  # tokens of one prompt


def synthesize(
    profile: Profile,
    out: Path,
    *,
    sessions: int,
    seed: int = 0,
    rate_per_s: float | None = None,
    max_prompt: int | None = None,
    first_prompt: int | None = None,
    caps: Caps = Caps(),  # noqa: B008 - frozen
) -> Path:
    """Write `sessions` main sessions (and their sub-agents) to `out`.

    `rate_per_s`: Poisson starts, else all at 0. `max_prompt`: a session ends before its prompt grows beyond.
    `first_prompt`: median of the first prompt, for sessions that start in the middle. Same arguments, same file.
    """
    if sessions < 1:
        raise InputError(f"the number of sessions must be at least 1, not {sessions}")
    maker = _Maker(profile, seed, caps, max_prompt or _CEILING, first_prompt)
    header = Header(
        version=1,
        name=f"{profile.name} {sessions}",
        source=Source(format="synthetic", tool="loadgen trace synth"),
        fidelity="blocks",
        block_size=profile.block_size,
        made={"profile": profile.name, "fitted_to": profile.source, "sessions": sessions, "seed": seed, "rate_per_s": rate_per_s,
              "max_prompt": max_prompt, "first_prompt": first_prompt, "cap_tool_s": caps.tool_s, "cap_human_s": caps.human_s},
    )  # fmt: skip
    arrivals = random.Random(seed)
    at = 0.0
    with TraceWriter(out, header) as writer:
        for number in range(sessions):
            if rate_per_s is not None:
                at += arrivals.expovariate(rate_per_s)
            maker.session(writer, number, at)
    return out


class _Maker:
    def __init__(
        self, profile: Profile, seed: int, caps: Caps, max_prompt: int, first_prompt: int | None
    ) -> None:
        self.profile = profile
        self.seed = seed
        self.caps = caps
        self.max_prompt = max_prompt
        self.first_prompt = first_prompt
        self._prefix_owner: dict[
            bool, tuple[str, int]
        ] = {}  # by is-sub-agent: the turn that first held the prefix, and how many blocks

    def session(self, writer: TraceWriter, number: int, start: float) -> None:
        """A main session; sub-agents follow the step that starts them."""
        rng = random.Random(f"{self.seed}/{number}")
        name = f"s{number:05d}"
        writer.session(Session(id=name, start_s=round(start, 6)))
        turns = _Steps(self, self.profile.main, rng, False).turns(name)
        for turn in turns:
            writer.turn(turn)
        writer.end(name)
        subs = self.profile.sub_agents
        if subs is None:
            return
        for turn in turns[:-1]:
            if rng.random() < subs.chance:
                for _ in range(max(1, round(draw(subs.fan_out, rng)))):
                    child = f"{name}/{turn.index}.{rng.getrandbits(24):06x}"
                    writer.session(
                        Session(
                            id=child,
                            parent=Parent(session=name, turn=turn.index),
                            agent="sub",
                            start_s=round(start, 6),
                        )
                    )
                    for row in _Steps(self, subs.agent, rng, True).turns(child):
                        writer.turn(row)
                    writer.end(child)

    def prefix(self, sub: bool, name: str, first: int) -> tuple[tuple[str, int] | None, int]:
        """Source and blocks of the common prefix for a session's first prompt of `first` tokens."""
        subs = self.profile.sub_agents
        tokens = subs.shared_prefix if sub and subs is not None else self.profile.shared_prefix
        blocks = min(tokens, first) // self.profile.block_size
        if sub not in self._prefix_owner:
            self._prefix_owner[sub] = (name, blocks)
            return None, 0
        owner, held = self._prefix_owner[sub]
        return ((owner, 0), min(blocks, held)) if min(blocks, held) else (None, 0)


class _Steps:
    """One session's walk."""

    def __init__(self, maker: _Maker, agent: Agent, rng: random.Random, sub: bool) -> None:
        self._maker, self._agent, self._rng, self._sub = maker, agent, rng, sub

    def turns(self, name: str) -> list[Turn]:
        agent, rng, size = self._agent, self._rng, self._maker.profile.block_size
        habits = draw_habits(agent, rng)
        stop = Stop(agent.requests, agent.stops, habits.patience)
        appends = Appends(agent, habits.growth, rng)
        prompt = max(size, round(habits.first))
        if self._maker.first_prompt is not None and not self._sub:
            prompt = round(prompt * self._maker.first_prompt / max(value(agent.first, 0.5), 1.0))
        prompt = min(prompt, self._maker.max_prompt)
        limit = Limit(agent.window, prompt, rng)
        source, reuse = self._maker.prefix(self._sub, name, prompt)
        found: list[Turn] = []
        gap: str | None = "tool" if self._sub else None
        did = "first"
        for index in range(MOST):
            last = stop.after(prompt) or index + 1 == MOST
            following = (
                None
                if last
                else "human"
                if rng.random() < habits.loop_end * (step_at(agent.loop_end_at, index + 1) or 0.0)
                else "tool"
            )
            answer = rng.gauss(0, 1)
            table = agent.output_tool if following == "tool" else agent.output_final
            output = max(1, round(value(table, NORMAL.cdf(answer))))
            found.append(self._turn(name, index, source, reuse, prompt, output, gap, following))
            if last:
                break
            did, kept, prompt = self._next(
                index + 1, prompt, following or "tool", did, limit, appends, answer
            )
            if prompt > self._maker.max_prompt:
                break
            source, reuse, gap = None, min(kept, prompt) // size, following
        return found

    def _turn(
        self,
        name: str,
        index: int,
        source: tuple[str, int] | None,
        reuse: int,
        prompt: int,
        output: int,
        kind: str | None,
        following: str | None,
    ) -> Turn:
        size, (c0, c1, c2, c3) = self._maker.profile.block_size, self._maker.profile.service
        new = prompt - reuse * size
        gap = None
        if kind is not None:
            human = kind == "human"
            seconds = draw(self._agent.gap_human_s if human else self._agent.gap_tool_s, self._rng)
            cap = self._maker.caps.human_s if human else self._maker.caps.tool_s
            gap = Gap("human" if human else "tool", round(seconds if cap is None else min(seconds, cap), 3))
        return Turn(
            session=name,
            index=index,
            blocks=Blocks(from_=source, reuse=reuse, new=prompt // size - reuse, tail_tokens=prompt % size),
            gap=gap,
            input_tokens=prompt,
            output_tokens=output,
            stop="tool_use" if following == "tool" else "end_turn",
            seen=Seen(e2e_s=round(c0 + c1 * output + c2 * new / 1000 + c3 * prompt / 1000, 3)),
        )

    def _next(
        self, index: int, prompt: int, gap: str, did: str, limit: Limit, appends: Appends, answer: float
    ) -> tuple[str, int, int]:
        """(what the step does, tokens kept of the last prompt, tokens of the next)."""
        agent, rng, human = self._agent, self._rng, gap == "human"
        # every tool step moves the run of its appends on, whatever it does
        grown = self._said(index, prompt) if human else appends.tokens(index, prompt, answer)
        if limit.reached(prompt, human):
            event = _event(agent.window.events, prompt, rng)
            if event is not None and event[2] < prompt:
                return "compaction", min(event[1], event[2]), event[2]
        leave = _leave(agent.leaves, did, gap)
        if leave is not None and rng.random() < (step_at(leave.chance, prompt) or 0.0):
            event = _event(leave.events, prompt, rng)
            if event is not None:
                before, kept, after = event
                kept = prompt * kept // max(before, 1)
                return "break", kept, max(kept, 1, prompt + after - before)
        return "extend", prompt, prompt + round(grown)

    def _said(self, turn: int, prompt: int) -> float:
        append = append_at(self._agent.append_human, turn, prompt)
        return 0.0 if append is None else draw(append.tokens, self._rng)


def _leave(leaves: Sequence[Leave], after: str, gap: str) -> Leave | None:
    return next((leave for leave in leaves if leave.after == after and leave.gap == gap), None)


def _event(
    events: list[tuple[int, int, int]], prompt: int, rng: random.Random
) -> tuple[int, int, int] | None:
    """One of the events nearest in size to the prompt."""
    if not events:
        return None
    place = bisect_left(events, (prompt, 0, 0))
    low = min(max(0, place - _NEAREST // 2), max(0, len(events) - _NEAREST))
    return rng.choice(events[low : low + _NEAREST])
