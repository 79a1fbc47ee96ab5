"""When each turn starts and ends, by the format's rule: previous end (and awaited children's ends) plus gap.

Durations are what the source measured, else a given model of the service. With `lanes`, only so many root
sessions live at a time, each started when one before it has ended: the closed schedule, for any number of agents.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from loadgen.errors import InputError
from loadgen.trace.model import Session, Turn
from loadgen.trace.reader import TraceFile

_DEEPEST = 100

Service = Callable[[Turn], float]
"""Seconds that a turn without a measured duration takes."""


def instant(turn: Turn) -> float:
    """A service that takes no time: gaps alone order the turns."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Caps:
    """Longest gaps that are kept, in seconds; null keeps all. Raises InputError for a negative one."""

    tool_s: float | None = None
    human_s: float | None = None

    def __post_init__(self) -> None:
        if any(cap is not None and not cap >= 0 for cap in (self.tool_s, self.human_s)):
            raise InputError(
                f"a cap on gaps must be 0 or more seconds, not {self.tool_s} (tool) and {self.human_s} (human)"
            )

    def of(self, turn: Turn) -> float:
        if turn.gap is None:
            return 0.0
        cap = self.tool_s if turn.gap.kind == "tool" else self.human_s
        return turn.gap.s if cap is None else min(turn.gap.s, cap)


class Timeline:
    """Starts and ends of all turns. Memory: 24 bytes a turn. Raises InputError for sub-agents nested over 100 deep."""

    def __init__(
        self, trace: TraceFile, *, lanes: int | None = None, caps: Caps = Caps(), service: Service = instant
    ) -> None:
        if lanes is not None and lanes < 1:
            raise InputError(f"the number of sessions at a time must be at least 1, not {lanes}")
        self._trace = trace
        self._caps = caps
        self._service = service
        self._numbers = {session.id: number for number, session in enumerate(trace.sessions)}
        self._children: dict[str, list[Session]] = {}
        for session in trace.sessions:
            if session.parent is not None:
                self._children.setdefault(session.parent.session, []).append(session)
        self.start, self.end = array("d"), array("d")
        self._session, self._turn = array("L"), array("L")
        roots = sorted((s for s in trace.sessions if s.parent is None), key=lambda session: session.start_s)
        free: list[float] = [0.0] * (lanes or 0)
        for session in roots:
            if lanes is None:
                self._play(session, session.start_s, 0)
            else:
                heapq.heappush(free, self._play(session, heapq.heappop(free), 0))

    def _play(self, session: Session, start: float, depth: int) -> float:
        """Place a session and its children; the end of the last of them."""
        if depth > _DEEPEST:
            raise InputError(f"{self._trace.path}: sub-agents are nested more than {_DEEPEST} deep")
        number = self._numbers[session.id]
        waiting: dict[int, list[Session]] = {}
        for child in self._children.get(session.id, ()):
            assert child.parent is not None
            waiting.setdefault(child.parent.turn, []).append(child)
        turns = self._trace.turns(session.id)
        clock = last = start
        for place, turn in enumerate(turns):
            begin = clock + self._caps.of(turn)
            measured = turn.seen.e2e_s if turn.seen is not None else None
            end = begin + (measured if measured is not None else self._service(turn))
            self.start.append(begin)
            self.end.append(end)
            self._session.append(number)
            self._turn.append(place)
            clock = end
            if place + 1 == len(turns) or turns[place + 1].index != turn.index:
                for child in waiting.pop(turn.index, ()):
                    done = self._play(child, end, depth + 1)
                    last = max(last, done)
                    if child.parent is not None and child.parent.wait:
                        clock = max(clock, done)
            last = max(last, clock)
        return last

    def __len__(self) -> int:
        return len(self.start)

    def in_order(self) -> Iterator[tuple[float, float, int, int]]:
        """(start, end, session number, place among the session's records) of every turn, by start."""
        for i in sorted(range(len(self.start)), key=self.start.__getitem__):
            yield self.start[i], self.end[i], self._session[i], self._turn[i]
