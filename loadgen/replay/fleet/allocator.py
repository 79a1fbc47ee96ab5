"""Who plays what next: the state of a run's sessions, kept by the master.

Pure and clock-free: lanes *ask* with a ticket, `pump` answers those that can be answered. Each session belongs to
exactly one worker from its first grant on. A worker that is lost takes its started sessions with it (their prefix is
in the server's cache already, so they are never played again); sessions that were granted and not started are dealt
again.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from loadgen.replay.job import Job

Ticket = str


@dataclass(frozen=True)
class Grant:
    """One piece of work. `turn`: play the turn at `position` of the session. `session`: play all of it, not before
    `start_s` (endpoint seconds from the start of the run). `end`: nothing is left for this lane."""

    kind: Literal["turn", "session", "end"]
    session: int = -1
    position: int = -1
    start_s: float = 0.0


@dataclass
class State:
    """Of one session."""

    owner: str | None = None
    granted: int = -1  # position of the last granted turn; for whole sessions 0
    busy: bool = False  # a grant is under way
    started: bool = False
    done: bool = False
    lost: bool = False
    cut: bool = False  # ended before its last turn


@dataclass
class Allocator:
    """Base of both kinds of schedule. `asking` holds the parked lanes in the order they came."""

    job: Job
    states: list[State] = field(init=False)
    asking: deque[tuple[str, Ticket]] = field(default_factory=deque)
    in_flight: int = 0
    draining: bool = False

    def __post_init__(self) -> None:
        self.states = [State() for _ in self.job.sessions]

    def ask(self, worker: str, ticket: Ticket) -> None:
        """A lane wants work."""
        self.asking.append((worker, ticket))

    def pump(self) -> Iterator[tuple[str, Ticket, Grant]]:
        """Answer every lane that can be answered now."""
        waiting, self.asking = self.asking, deque()
        for worker, ticket in waiting:
            grant = Grant("end") if self.draining or self.finished else self._grant(worker)
            if grant is None:
                self.asking.append((worker, ticket))
            else:
                yield worker, ticket, grant

    def _grant(self, worker: str) -> Grant | None:
        raise NotImplementedError

    @property
    def finished(self) -> bool:
        """Nothing is left to deal and nothing is under way."""
        raise NotImplementedError

    def started(self, session: int) -> None:
        """The first byte of a session's first turn is about to be sent."""
        self.states[session].started = True

    def drain(self) -> None:
        """Grant nothing more."""
        self.draining = True

    def forget_lanes(self, worker: str) -> None:
        self.asking = deque(entry for entry in self.asking if entry[0] != worker)

    @property
    def lost_sessions(self) -> list[str]:
        return [s.id for s, state in zip(self.job.sessions, self.states, strict=True) if state.lost]

    @property
    def cut_sessions(self) -> list[str]:
        return [s.id for s, state in zip(self.job.sessions, self.states, strict=True) if state.cut]


@dataclass
class Sweep(Allocator):
    """Round by round, in the trace's order. After each round `round_over` is True until `open_round` is called."""

    width: int = 1
    round: int = 0
    round_over: bool = False
    _pending: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rounds = max((len(s.turns) for s in self.job.sessions), default=0)
        self._fill()

    def _fill(self) -> None:
        self._pending = deque(
            i
            for i, (session, state) in enumerate(zip(self.job.sessions, self.states, strict=True))
            if len(session.turns) > self.round and not (state.lost or state.cut)
        )

    def _grant(self, worker: str) -> Grant | None:
        if self.in_flight >= self.width or self.round_over:
            return None
        for session in self._pending:
            state = self.states[session]
            if state.owner is None or state.owner == worker:
                self._pending.remove(session)
                state.owner, state.granted, state.busy = worker, self.round, True
                self.in_flight += 1
                return Grant("turn", session, self.round)
        return None

    def turn_done(self, session: int, *, cut: bool) -> None:
        """A turn ended, well or badly. `cut`: the session ends with it."""
        state = self.states[session]
        if state.lost:
            return
        self.in_flight -= 1
        state.busy = False
        last = state.granted + 1 >= len(self.job.sessions[session].turns)
        state.done = last
        state.cut = cut and not last
        self._close_round()

    def _close_round(self) -> None:
        if not self._pending and self.in_flight == 0:
            self.round_over = True

    def open_round(self) -> bool:
        """Begin the next round; False when there is none."""
        while self.round + 1 < self.rounds:
            self.round += 1
            self._fill()
            if self._pending:
                self.round_over = False
                return True
        self.round = self.rounds
        return False

    @property
    def finished(self) -> bool:
        return self.round_over and self.round >= self.rounds

    def worker_lost(self, worker: str) -> None:
        """Its started sessions are lost, the others go back into the round."""
        self.forget_lanes(worker)
        for number, state in enumerate(self.states):
            if state.owner != worker or state.done or state.lost:
                continue
            self.in_flight -= state.busy
            if state.started:
                state.lost = True
                if number in self._pending:
                    self._pending.remove(number)
            else:
                state.owner, state.granted = None, -1
                self._pending.appendleft(number)
            state.busy = False
        self._close_round()


@dataclass
class Sessions(Allocator):
    """Whole sessions, in the trace's order: closed, open and timed differ in `arrival_s` only."""

    _pending: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pending = deque(i for i, session in enumerate(self.job.sessions) if not session.child)

    def _grant(self, worker: str) -> Grant | None:
        if not self._pending:  # a lane waits until the last session is done: a lost worker's may come back
            return None
        session = self._pending.popleft()
        state = self.states[session]
        state.owner, state.granted, state.busy = worker, 0, True
        self.in_flight += 1
        return Grant("session", session, 0, self.job.sessions[session].arrival_s)

    def session_done(self, session: int, *, cut: bool) -> None:
        state = self.states[session]
        if state.lost:
            return
        state.done, state.cut, state.busy = True, cut, False
        self.in_flight -= 1

    @property
    def finished(self) -> bool:
        return not self._pending and self.in_flight == 0

    def worker_lost(self, worker: str) -> None:
        self.forget_lanes(worker)
        for number, state in reversed(list(enumerate(self.states))):
            if state.owner != worker or state.done or state.lost:
                continue
            self.in_flight -= 1
            if state.started:
                state.lost = True
            else:
                state.owner, state.granted = None, -1
                self._pending.appendleft(number)
            state.busy = False
