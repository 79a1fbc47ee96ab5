"""One worker's side of a run: its lanes ask the master for work, play it, and keep what was measured.

The same object serves a run on one process: Locust's local runner delivers messages to itself.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
from gevent.event import AsyncResult, Event

from loadgen.measure import metrics
from loadgen.measure.hist import HistogramSet
from loadgen.measure.journal import JournalError, SampleWriter
from loadgen.measure.sample import Sample, Tiers
from loadgen.replay.content import Contents
from loadgen.replay.endpoint import api_key
from loadgen.replay.fleet.allocator import Grant
from loadgen.replay.fleet.health import Health
from loadgen.replay.fleet.scrape import Isolation
from loadgen.replay.job import Job, read_job
from loadgen.replay.player import SessionPlayer, Settings
from loadgen.replay.wire import apis
from loadgen.replay.wire.exchange import Exchange
from loadgen.replay.wire.target import Target
from loadgen.trace.reader import open_trace

Send = Callable[[str, dict[str, Any]], None]


def auth_headers(job: Job) -> tuple[tuple[str, str], ...]:
    key = api_key(job.api_key_env)
    return (("Authorization", f"Bearer {key}"),) if key else ()


class Worker:
    """`send(kind, data)` takes a message to the master; `on_sample` hears of every turn (Locust's own statistics)."""

    def __init__(self, send: Send, on_sample: Callable[[Sample], None]) -> None:
        self._send = send
        self._on_sample = on_sample
        self._tickets: dict[str, AsyncResult] = {}
        self._ticket = 0
        self._players: dict[int, SessionPlayer] = {}
        self._lanes = 0
        self._idle = Event()
        self._idle.set()
        self.job: Job | None = None
        self.draining = False

    # the course of a run

    def begin(self, job_path: Path, worker: str) -> None:
        """Get ready to play: after this no file is parsed and nothing large is allocated."""
        self.end()
        job = read_job(job_path)
        self.worker = worker
        self._trace = open_trace(Path(job.trace))
        if self._trace.sha256 != job.trace_sha256:
            raise ValueError(f"the trace {job.trace} changed after the run was prepared")
        self._sessions = {session.id: session for session in self._trace.sessions}
        self._numbers = {session.id: number for number, session in enumerate(job.sessions)}
        self._target = Target.parse(job.url)
        headers = auth_headers(job)
        run_dir = Path(job.run_dir)
        self._journal = SampleWriter(run_dir / f"samples-{worker}.jsonl")
        self._health = Health(run_dir / f"client-{worker}.jsonl", worker)
        self._isolation = Isolation(self._target, headers) if job.isolate else None
        self._settings = Settings(
            job=job,
            worker=worker,
            target=self._target,
            api=apis.get(job.api),
            contents=Contents(self._trace),
            headers=headers,
            emit=self._emit,
            tiers_of=self._tiers,
        )
        self.histograms = HistogramSet()
        self._seq = 0
        self.counts = {"turns": 0, "errors": 0, "in_flight": 0, "output_tokens": 0}
        self.incidents: list[tuple[str, str]] = []
        self.draining = False
        self._began_ns = monotonic_ns()
        self._first_ns: int | None = None
        self.job = job
        gc.collect()
        gc.freeze()

    def end(self) -> None:
        """Close everything; what was measured stays."""
        if self.job is None:
            return
        self.job = None
        for player in list(self._players.values()):
            player.close()
        self._players.clear()
        self._health.close()
        self._journal.close()
        self._trace.close()
        for ticket in self._tickets.values():
            ticket.set((Grant("end"), False))
        gc.unfreeze()

    def drain(self, deadline_s: float) -> None:
        """Let the turns under way end; cut what has not ended after `deadline_s`."""
        self.draining = True
        self._idle.wait(deadline_s)
        for player in list(self._players.values()):
            player.abort()
        self._idle.wait(2.0)

    def snapshot(self, *, final: bool = False) -> dict[str, Any]:
        """Everything measured so far, cumulative: a lost or repeated snapshot does no harm."""
        if self.job is None:
            return {}
        self._seq += 1
        return {
            "run": self.job.run,
            "worker": self.worker,
            "seq": self._seq,
            "final": final,
            "pid": os.getpid(),
            "mono_ns": monotonic_ns(),
            "wall_ns": time.time_ns(),
            "histograms": self.histograms.snapshot(),
            "counts": dict(self.counts),
            "lag_p99_us": self._health.lag_p99_us,
            "incidents": list(self.incidents),
        }

    # lanes

    def next(self) -> tuple[Grant, int]:
        """Ask for work and wait for it. With it comes the time (ns) from which this lane was free to do it."""
        if self.job is None or self.draining:
            return Grant("end"), monotonic_ns()
        self._ticket += 1
        ticket = f"{os.getpid()}-{self._ticket}"
        result = self._tickets[ticket] = AsyncResult()
        asked_ns = monotonic_ns()
        try:
            self._send("ask", {"ticket": ticket, "run": self.job.run})
            grant, parked = result.get()
        finally:
            del self._tickets[ticket]
        return grant, monotonic_ns() if parked else asked_ns

    def granted(self, ticket: str, grant: Grant, parked: bool) -> None:
        """The master's answer."""
        result = self._tickets.get(ticket)
        if result is not None:
            result.set((grant, parked))

    def play(self, grant: Grant, free_ns: int) -> None:
        """Do one piece of work."""
        job = self.job
        if job is None:
            return
        self._lanes += 1
        self._idle.clear()
        try:
            if grant.kind == "turn":
                self._play_turn(job, grant, free_ns)
            else:
                self._play_session(job, grant, free_ns)
        finally:
            self._lanes -= 1
            if self._lanes == 0:
                self._idle.set()

    def _player(self, number: int) -> SessionPlayer:
        player = self._players.get(number)
        if player is None:
            assert self.job is not None
            plan = self.job.sessions[number]
            wanted = {(turn.index, turn.attempt) for turn in plan.turns}
            records = [t for t in self._trace.turns(plan.id) if (t.index, t.attempt) in wanted]
            player = self._players[number] = SessionPlayer(self._settings, plan, self._sessions[plan.id], records)
            self._send("started", {"run": self.job.run, "session": number})
        return player

    def _play_turn(self, job: Job, grant: Grant, free_ns: int) -> None:
        """A sweep's turn. Its connection is closed after the session's last one."""
        player = self._player(grant.session)
        if self._isolation is not None and self._first_ns is None:
            self._isolation.open()
        self._play(player, grant.position, free_ns)
        last = player.cut or grant.position + 1 >= len(player.plan.turns)
        if last:
            self._players.pop(grant.session, None)
            player.close()
        self._send("turn_done", {"run": job.run, "session": grant.session, "cut": player.cut})

    def _play_session(self, job: Job, grant: Grant, free_ns: int) -> None:
        """A whole session and its children. `start_s` counts from the start of the run on this worker."""
        intended = free_ns
        if grant.start_s or job.schedule["kind"] in ("open", "timed"):
            intended = self._began_ns + int(grant.start_s / job.time_scale * 1e9)
        cut = self._play_family(job, grant.session, intended)
        self._send("session_done", {"run": job.run, "session": grant.session, "cut": cut})

    def _play_family(self, job: Job, number: int, intended_ns: int) -> bool:
        """Play a session from its first turn; its children start when the turn that spawned them ends. True: it was cut."""
        if not self._sleep_until(intended_ns):
            return True
        player = self._player(number)
        running: list[tuple[bool, gevent.Greenlet]] = []
        cut = False
        try:
            for position, turn in enumerate(player.plan.turns):
                if position:
                    intended_ns += int(turn.gap_s / job.time_scale * 1e9)
                    if self.draining or not self._sleep_until(intended_ns):
                        cut = True
                        break
                ended_ns = self._play(player, position, intended_ns)
                if player.cut:
                    cut = True
                    break
                last_attempt = position + 1 >= len(player.plan.turns) or player.plan.turns[position + 1].index != turn.index
                if last_attempt:
                    running += self._spawn_children(job, player, turn.index, ended_ns)
                awaited = [child for waits, child in running if waits]
                if awaited:
                    gevent.joinall(awaited)
                    ended_ns = max(ended_ns, monotonic_ns())
                running = [entry for entry in running if not entry[1].dead]
                intended_ns = ended_ns
        finally:
            player.close()
            self._players.pop(number, None)
        gevent.joinall([child for _, child in running])
        return cut

    def _spawn_children(
        self, job: Job, player: SessionPlayer, index: int, ended_ns: int
    ) -> list[tuple[bool, gevent.Greenlet]]:
        spawned = []
        for session, after, waits in player.plan.children:
            if after == index:
                number = self._numbers[session]
                first = job.sessions[number].turns
                begin = ended_ns + int((first[0].gap_s if first else 0.0) / job.time_scale * 1e9)
                spawned.append((waits, gevent.spawn(self._play_family, job, number, begin)))
        return spawned

    def _sleep_until(self, moment_ns: int) -> bool:
        """False when the run drained meanwhile."""
        while not self.draining:
            left = moment_ns - monotonic_ns()
            if left <= 0:
                return True
            gevent.sleep(min(left / 1e9, 0.5))
        return False

    def _play(self, player: SessionPlayer, position: int, intended_ns: int) -> int:
        self._first_ns = self._first_ns or monotonic_ns()
        self.counts["in_flight"] += 1
        try:
            return player.play(position, intended_ns)
        finally:
            self.counts["in_flight"] -= 1

    # what was measured

    def _tiers(self, exchange: Exchange) -> Tiers | None:
        return None if self._isolation is None else self._isolation.tiers(exchange)

    def _emit(self, sample: Sample) -> None:
        assert self.job is not None
        try:
            self._journal.write(sample)
        except JournalError as error:
            self.incidents.append(("lost_samples", str(error)))
            self._send("stop", {"run": self.job.run, "why": str(error)})
        metrics.record(self.histograms, sample, self.job.time_scale)
        if sample.turn or self.job.schedule["kind"] in ("sweep", "closed"):  # else it may have waited for a free lane
            self._health.sent(sample.send_ns - sample.intended_ns - (sample.connect_ns or 0))
        self.counts["turns"] += 1
        self.counts["errors"] += sample.error is not None
        self.counts["output_tokens"] += sample.output_tokens or 0
        self._on_sample(sample)
