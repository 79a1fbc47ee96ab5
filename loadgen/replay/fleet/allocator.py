"""Who plays what next: the state of a run's sessions, kept by the master.

Pure and clock-free: lanes *ask* with a ticket, `pump` answers those that can be answered. Each session belongs to
exactly one worker from its first grant on. A worker that is lost takes its started sessions with it (their prefix is
in the server's cache already, so they are never played again); sessions that were granted and not started are dealt
again. Warm-up sessions come first, and nothing else until they are done.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Literal

from loadgen.replay.job import Job

Ticket = str


@dataclass(frozen=True)
class Grant:
    """One piece of work. `turn`: play the session's next turn. `session`: play all that is left of it, not before
    `start_s` (endpoint seconds from the start of the run). `end`: nothing is left for this lane.

    `skip` of a session's turns were played before the run was resumed: they are in the prompt and are not sent again.
    """

    kind: Literal["turn", "session", "end"]
    session: int = -1
    skip: int = 0
    start_s: float = 0.0


@dataclass
class State:
    """Of one session."""

    owner: str | None = None
    played: int = 0  # turns that are over
    skip: int = 0  # of which before the run was resumed
    busy: bool = False  # a grant is under way
    started: bool = False
    done: bool = False
    lost: bool = False
    cut: bool = False  # ended before its last turn


@dataclass
class Allocator:
    """Base of both kinds of schedule. `asking` holds the parked lanes in the order they came.

    `done_before` tells for a resumed run how many turns of a session are over already.
    """

    job: Job
    done_before: Mapping[str, int] = field(default_factory=dict)
    states: list[State] = field(init=False)
    asking: deque[tuple[str, Ticket]] = field(default_factory=deque)
    in_flight: int = 0
    draining: bool = False
    _warmups: deque[int] = field(default_factory=deque)
    _warming: int = 0
    _pending: deque[int] = field(default_factory=deque)

    def __post_init__(self) -> None:
        self.states = [State() for _ in self.job.sessions]
        for number, session in enumerate(self.job.sessions):
            state = self.states[number]
            state.played = state.skip = self.done_before.get(session.id, 0)
            state.done = state.played >= len(session.turns)
            if session.warmup and not state.done:
                self._warmups.append(number)

    def ask(self, worker: str, ticket: Ticket) -> None:
        """A lane wants work."""
        self.asking.append((worker, ticket))

    def pump(self) -> Iterator[tuple[str, Ticket, Grant]]:
        """Answer every lane that can be answered now."""
        waiting, self.asking = self.asking, deque()
        for worker, ticket in waiting:
            if self.draining or self.finished:
                grant: Grant | None = Grant("end")
            elif self._warmups:
                number = self._warmups.popleft()
                self.states[number].owner, self.states[number].busy = worker, True
                self._warming += 1
                grant = Grant("session", number)
            elif self._warming:
                grant = None
            else:
                grant = self._grant(worker)
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

    def withdraw(self, ticket: Ticket) -> None:
        """The lane that asked is gone."""
        self.asking = deque(entry for entry in self.asking if entry[1] != ticket)

    def give_back(self, session: int) -> None:
        """A grant that found no lane any more is dealt again, to the same worker if the session was begun there."""
        state = self.states[session]
        if not state.busy or state.lost or state.done:
            return
        state.busy = False
        if not state.started:
            state.owner = None
        if self.job.sessions[session].warmup:
            self._warming -= 1
            self._warmups.appendleft(session)
        else:
            self.in_flight -= 1
            self._pending.appendleft(session)

    def session_done(self, session: int, *, cut: bool) -> None:
        """A session that was granted as a whole is over."""
        state = self.states[session]
        if state.lost or state.done:
            return
        state.done, state.cut, state.busy = True, cut, False
        if self.job.sessions[session].warmup:
            self._warming -= 1
        else:
            self.in_flight -= 1

    def worker_lost(self, worker: str) -> None:
        """Its started sessions are lost, the others are dealt again."""
        self.asking = deque(entry for entry in self.asking if entry[0] != worker)
        for number, state in reversed(list(enumerate(self.states))):
            if state.owner != worker or state.done or state.lost:
                continue
            if self.job.sessions[number].warmup:
                self._warming -= state.busy
                state.done = True
                continue
            self.in_flight -= state.busy
            state.busy = False
            if state.started:
                state.lost = True
                if number in self._pending:
                    self._pending.remove(number)
            else:
                state.owner = None
                if number not in self._pending:
                    self._pending.appendleft(number)

    def drain(self) -> None:
        """Grant nothing more."""
        self.draining = True

    @property
    def lost_sessions(self) -> list[str]:
        return [s.id for s, state in zip(self.job.sessions, self.states, strict=True) if state.lost]


@dataclass
class Sweep(Allocator):
    """Round by round, in the trace's order. After each round `round_over` is True until `open_round` is called."""

    width: int = 1
    round: int = 0
    round_over: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        self.rounds = max((len(s.turns) for s in self.job.sessions if not s.warmup), default=0)
        self.round = -1
        self.open_round()

    def _fill(self) -> None:
        self._pending = deque(
            number
            for number, (session, state) in enumerate(zip(self.job.sessions, self.states, strict=True))
            if state.played <= self.round < len(session.turns)
            and not (session.warmup or state.lost or state.cut or state.done)
        )

    def _grant(self, worker: str) -> Grant | None:
        if self.in_flight >= self.width or self.round_over:
            return None
        for session in self._pending:
            state = self.states[session]
            if state.owner is None or state.owner == worker:
                self._pending.remove(session)
                state.owner, state.busy = worker, True
                self.in_flight += 1
                return Grant("turn", session, state.skip)
        return None

    def turn_done(self, session: int, *, cut: bool) -> None:
        """A turn ended, well or badly. `cut`: the session ends with it."""
        state = self.states[session]
        if state.lost:
            return
        self.in_flight -= 1
        state.busy = False
        state.played += 1
        state.done = state.played >= len(self.job.sessions[session].turns)
        state.cut = cut and not state.done
        self._close_round()

    def _close_round(self) -> None:
        if not self._pending and self.in_flight == 0:
            self.round_over = True

    def open_round(self) -> bool:
        """Begin the next round in which anything is left; False when there is none."""
        while self.round + 1 < self.rounds:
            self.round += 1
            self._fill()
            if self._pending:
                self.round_over = False
                return True
        self.round, self.round_over = self.rounds, True
        return False

    @property
    def finished(self) -> bool:
        return self.round_over and self.round >= self.rounds

    def worker_lost(self, worker: str) -> None:
        super().worker_lost(worker)
        if not self._warming and not self._warmups:
            self._close_round()


@dataclass
class Sessions(Allocator):
    """Whole sessions, in the trace's order: closed, open and timed differ in `arrival_s` only."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self._pending = deque(
            number
            for number, (session, state) in enumerate(zip(self.job.sessions, self.states, strict=True))
            if not (session.child or session.warmup or state.done)
        )

    def _grant(self, worker: str) -> Grant | None:
        if not self._pending:  # a lane waits until the last session is done: a lost worker's may come back
            return None
        session = self._pending.popleft()
        state = self.states[session]
        state.owner, state.busy = worker, True
        self.in_flight += 1
        return Grant("session", session, state.skip, self.job.sessions[session].arrival_s)

    @property
    def finished(self) -> bool:
        return not self._pending and self.in_flight == 0 and not self._warming and not self._warmups
