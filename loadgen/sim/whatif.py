"""A trace on a simulated machine without a server: the engine of the simulated endpoint, as fast as it computes.

Schedules: `closed` keeps N sessions alive, each lane taking the next when one ends; `sweep` plays all first
turns in order, waits, then all second turns; `timed` starts sessions when the trace did.
"""

from __future__ import annotations

import gc
import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from loadgen.errors import InputError
from loadgen.sim.engine import Engine
from loadgen.sim.profile import Profile
from loadgen.sim.request import Request
from loadgen.sim.workload import Answers, PlannedSession, Streams, Workload

Schedule = Literal["closed", "sweep", "timed"]
CLASSES = ("first", "reuse", "rebuilt")
_FIRST_SHARE = 0.02  # a turn that shares no more of its prompt than a common system prompt


@dataclass(slots=True)
class Outcome:
    """Figures of all turns, in the order in which they ended, and of the machine."""

    ttft_s: npt.NDArray[np.float64]
    e2e_s: npt.NDArray[np.float64]
    prompt: npt.NDArray[np.int64]
    hbm: npt.NDArray[np.int64]
    external: npt.NDArray[np.int64]
    output: npt.NDArray[np.int64]
    klass: npt.NDArray[np.int8]  # index into CLASSES
    session: npt.NDArray[np.int64]
    total_s: float
    rejected: int  # turns that no pool of this size can hold
    preemptions: int
    read_bytes: int
    written_bytes: int
    stored_tokens: int
    load_peak_bytes_s: float  # most bytes that arrived in any ten seconds, over ten

    def percentile(self, q: float, klass: int | None = None) -> float | None:
        """TTFT at rank ceil(q n); none without a turn."""
        values = self.ttft_s if klass is None else self.ttft_s[self.klass == klass]
        if not len(values):
            return None
        rank = max(1, math.ceil(q * len(values)))
        return float(np.partition(values, rank - 1)[rank - 1])


class _Lane:
    """One session on its way, in one copy of the workload."""

    __slots__ = ("awaited", "lane", "number", "parent", "place", "planned", "streams", "until_s")

    def __init__(
        self,
        planned: PlannedSession,
        streams: Streams,
        number: int,
        lane: int,
        parent: tuple[_Lane, bool] | None,
    ) -> None:
        self.planned = planned
        self.streams = streams
        self.number = number
        self.lane = lane
        self.parent = parent
        self.place = 0
        self.awaited = 0  # children that must end before the next turn
        self.until_s = 0.0  # when the last turn or awaited child ended


class WhatIf:
    """One run. `sessions`: how many live at a time (closed) or take part (sweep); copies of the trace share nothing."""

    def __init__(
        self,
        profile: Profile,
        arm: str,
        workload: Workload,
        *,
        sessions: int,
        schedule: Schedule = "closed",
        answers: Answers = "live",
    ) -> None:
        if sessions < 1:
            raise InputError(f"the number of sessions must be at least 1, not {sessions}")
        self.engine = Engine(profile, arm)
        self._kv_bytes = profile.kv_bytes_per_token
        self._workload = workload
        self._schedule = schedule
        self._answers = answers
        self._width = sessions
        self._copies: list[Streams] = []
        self._dealt = 0
        self._lanes = 0
        self._round: list[_Lane] = []  # sweep: whose turn is still to come in this round
        self._next_round: list[_Lane] = []
        self._rows: list[tuple[float, float, int, int, int, int, int, int]] = []
        self._loads: list[tuple[float, int]] = []
        self.rejected = 0

    def run(self) -> Outcome:
        """Play everything. The collector of cycles stays off meanwhile: nothing here makes any, and it takes a tenth."""
        collects = gc.isenabled()
        gc.disable()
        try:
            self._begin()
            step = self.engine.step
            while (done := step(True)) is not None:
                for request in done.finished:
                    self._ended(request)
        finally:
            if collects:
                gc.enable()
        return self._outcome()

    # -- schedule

    def _begin(self) -> None:
        roots = len(self._workload.roots)
        if self._schedule == "timed":
            for _ in range(max(1, self._width // roots)):
                for number in self._workload.roots:
                    session = self._deal()
                    assert session is not None
                    self._send(session, self._workload.sessions[number].start_s)
            return
        self._total = max(self._width, -(-self._width // roots) * roots)
        lanes = [self._deal() for _ in range(self._width)]
        if self._schedule == "sweep":
            self._round = [lane for lane in lanes if lane is not None][::-1]
            self._sweep(0.0)
            return
        for lane in lanes:
            if lane is not None:
                self._send(lane, 0.0)

    def _deal(self) -> _Lane | None:
        """The next root session; none when all have been dealt."""
        roots = self._workload.roots
        if self._schedule != "timed" and self._dealt >= self._total:
            return None
        copy, at = divmod(self._dealt, len(roots))
        if at == 0:
            self._copies.append(Streams(self._workload, self._answers))
        self._dealt += 1
        return self._lane(roots[at], self._copies[copy], None)

    def _lane(self, number: int, streams: Streams, parent: tuple[_Lane, bool] | None) -> _Lane:
        self._lanes += 1
        return _Lane(self._workload.sessions[number], streams, number, self._lanes - 1, parent)

    def _send(self, lane: _Lane, at_s: float) -> None:
        """Submit the lane's next turn, `at_s` plus nothing; skip those that can never fit."""
        turns = lane.planned.turns
        engine = self.engine
        while lane.place < len(turns):
            turn = turns[lane.place]
            if engine.fits(turn.prompt + turn.output):
                stream, full = lane.streams.of(turn)
                ready_s = at_s + engine.cost.host(turn.prompt)
                engine.submit(
                    Request(stream, turn.prompt, turn.output, ready_s=ready_s, full=full, owner=(lane, at_s))
                )
                return
            self.rejected += 1
            lane.place += 1
        self._over(lane, at_s)

    def _ended(self, request: Request) -> None:
        lane, sent_s = request.owner
        turn = lane.planned.turns[lane.place]
        now = request.finish_s
        share = turn.shared / turn.prompt
        klass = 1 if share >= 0.5 else 0 if share <= _FIRST_SHARE else 2
        self._rows.append(
            (
                request.first_token_s - sent_s,
                now - sent_s,
                turn.prompt,
                request.hbm,
                request.external,
                turn.output,
                klass,
                lane.lane,
            )
        )
        if request.external:
            self._loads.append((request.first_token_s, request.external * self._kv_bytes))
        lane.until_s = now
        for number, awaited in lane.planned.children.get(lane.place, ()):
            child = self._lane(number, lane.streams, (lane, awaited))
            lane.awaited += awaited
            first = child.planned.turns[0].gap_s if child.planned.turns else 0.0
            self._send(child, now + first)
        lane.place += 1
        if not lane.awaited:
            self._proceed(lane)

    def _proceed(self, lane: _Lane) -> None:
        turns = lane.planned.turns
        if lane.place >= len(turns):
            self._over(lane, lane.until_s)
        elif self._schedule == "sweep" and lane.parent is None:
            self._next_round.append(lane)
            self._sweep(lane.until_s)
        else:
            self._send(lane, lane.until_s + turns[lane.place].gap_s)

    def _over(self, lane: _Lane, at_s: float) -> None:
        """A session has ended: its parent may go on, or its lane takes the next one."""
        if lane.parent is not None:
            parent, awaited = lane.parent
            if awaited:
                parent.awaited -= 1
                parent.until_s = max(parent.until_s, at_s)
                if not parent.awaited:
                    self._proceed(parent)
        elif self._schedule == "closed":
            follower = self._deal()
            if follower is not None:
                self._send(follower, at_s)
        elif self._schedule == "sweep":
            self._sweep(at_s)

    def _sweep(self, at_s: float) -> None:
        """The next turn of the round; after the last, the round that follows."""
        if not self._round:
            self._round, self._next_round = self._next_round[::-1], []
        if self._round:
            self._send(self._round.pop(), at_s)

    # -- results

    def _outcome(self) -> Outcome:
        table = np.array(self._rows, np.float64).reshape(-1, 8)
        tiers = self.engine.connector.tiers
        whole = table[:, 2:].astype(np.int64)
        return Outcome(
            ttft_s=table[:, 0],
            e2e_s=table[:, 1],
            prompt=whole[:, 0],
            hbm=whole[:, 1],
            external=whole[:, 2],
            output=whole[:, 3],
            klass=whole[:, 4].astype(np.int8),
            session=whole[:, 5],
            total_s=self.engine.now_s,
            rejected=self.rejected,
            preemptions=self.engine.preemptions,
            read_bytes=sum(tier.read_bytes for tier in tiers),
            written_bytes=sum(tier.written_bytes for tier in tiers),
            stored_tokens=max((tier.store.used * tier.tier.chunk for tier in tiers), default=0),
            load_peak_bytes_s=_peak(self._loads),
        )


def _peak(loads: list[tuple[float, int]], window_s: float = 10.0) -> float:
    if not loads:
        return 0.0
    when = np.array([at for at, _ in loads])
    sums = np.bincount((when // window_s).astype(np.int64), weights=[size for _, size in loads])
    return float(sums.max()) / window_s
