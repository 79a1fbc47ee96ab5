"""One worker's side of a run: its lanes ask the master for work, play it, and keep what was measured.

The same object serves a run on one process: Locust's local runner delivers messages to itself.
"""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
import msgspec
from gevent.event import Event
from gevent.lock import RLock

from loadgen.descriptors import widen
from loadgen.measure.journal import JournalError, SampleWriter
from loadgen.measure.sample import Sample, Tiers
from loadgen.replay import limits
from loadgen.replay.content import Contents
from loadgen.replay.fleet.allocator import Grant
from loadgen.replay.fleet.health import Health
from loadgen.replay.fleet.remote import Shipper, fetch_job
from loadgen.replay.fleet.scrape import Isolation
from loadgen.replay.fleet.tally import Tally
from loadgen.replay.fleet.tickets import Tickets
from loadgen.replay.job import Job, PlannedSession, read_job
from loadgen.replay.player import SessionPlayer, Settings
from loadgen.replay.transport import request_headers, tls_context
from loadgen.replay.turnstile import Turnstile
from loadgen.replay.wire import apis
from loadgen.replay.wire.exchange import Exchange
from loadgen.replay.wire.target import Target
from loadgen.trace.reader import open_trace

log = logging.getLogger("loadgen")

Send = Callable[[str, dict[str, Any]], None]

_SHIP_S = 10.0


class Worker:
    """`send(kind, data)` takes a message to the master; `on_sample` hears of every turn (Locust's own statistics)."""

    def __init__(self, send: Send, on_sample: Callable[[Sample], None]) -> None:
        self._send = send
        self._on_sample = on_sample
        self._tickets = Tickets(send)
        self._players: dict[int, SessionPlayer] = {}
        self._lanes = 0
        self._idle = Event()
        self._idle.set()
        self._fetching = RLock()
        self._absent: str | None = None  # the run that has to be fetched first
        self.job: Job | None = None
        self.draining = False

    # the course of a run

    def begin(self, job_path: Path, worker: str, users: int = 1) -> None:
        """Get ready to play: after this no file is parsed and nothing large is allocated.

        A worker that does not see the run folder is on another machine. It fetches what it needs when its first lane asks
        for work: here, the greenlet that would bring the answer is the one that calls.
        """
        self.end()
        self.worker, self._users = worker, users
        self._absent = None if job_path.exists() else job_path.parent.name
        if self._absent is None:
            self._open(read_job(job_path))

    def _open(self, job: Job) -> None:
        self._trace = open_trace(Path(job.trace))
        if self._trace.sha256 != job.trace_sha256:
            raise ValueError(f"the trace {job.trace} changed after the run was prepared")
        self._sessions = {session.id: session for session in self._trace.sessions}
        self._numbers = {session.id: number for number, session in enumerate(job.sessions)}
        headers = request_headers(job.api_key_env, job.auth_scheme, job.api, job.headers)
        targets = [Target.parse(url) for url in job.urls]
        self._run_dir = Path(job.run_dir)
        self._journal = SampleWriter(self._run_dir / f"samples-{self.worker}.jsonl")
        self._warmups: SampleWriter | None = None
        self._health = Health(self._run_dir / f"client-{self.worker}.jsonl", self.worker)
        self._isolation = Isolation(targets[0], job) if job.isolate else None
        self._settings = Settings(
            job=job,
            worker=self.worker,
            targets=targets,
            api=apis.get(job.api),
            contents=Contents(self._trace),
            headers=headers,
            tls=tls_context(job.ca_file),
            emit=self._emit,
            tiers_of=self._tiers,
            ending=lambda: self.draining,
            turnstile=Turnstile(),
        )
        self.tally = Tally()
        self._seq = 0
        self.incidents: list[tuple[str, str]] = []
        self.draining = False
        self._began_ns = monotonic_ns()
        self._first_ns: int | None = None
        self._shipper: Shipper | None = None
        self.job = job
        widen(limits.open_files(limits.streams_in(job, self._users), job.texts))
        gc.collect()
        gc.freeze()

    def _fetch(self) -> None:
        """Bring the run to this machine; the first lane does, the others wait."""
        with self._fetching:
            run = self._absent
            if run is None:
                return

            def ask(kind: str, data: dict[str, Any]) -> dict[str, Any]:
                return self._tickets.ask(kind, run, data)

            self._open(read_job(fetch_job(ask, run)))
            self._absent = None
            files = [
                self._run_dir / f"{kind}-{self.worker}.jsonl" for kind in ("samples", "client", "warmup")
            ]
            self._shipper = Shipper(ask, files)

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
        if self._warmups is not None:
            self._warmups.close()
        self._trace.close()
        if self._shipper is not None:
            with gevent.Timeout(_SHIP_S, False):  # a master that is gone takes nothing; the files stay here
                self._shipper.close()
        self._tickets.end()
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
            "mono_ns": monotonic_ns(),
            "wall_ns": time.time_ns(),
            "histograms": self.tally.histograms.snapshot(),
            "counts": dict(self.tally.counts),
            "lag_p99_us": self._health.lag_p99_us,
            "incidents": list(self.incidents),
        }

    # what lanes ask the master

    def next(self) -> tuple[Grant, int]:
        """Ask for work and wait for it. With it comes the time (ns) from which this lane was free to do it."""
        if self._absent is not None:
            self._fetch()
        if self.job is None or self.draining:
            return Grant("end"), monotonic_ns()
        asked_ns = monotonic_ns()
        answer = self._tickets.ask("ask", self.job.run)
        grant = Grant(
            answer["kind"], answer.get("session", -1), answer.get("skip", 0), answer.get("start_s", 0.0)
        )
        return grant, monotonic_ns() if answer["parked"] else asked_ns

    def answered(self, data: dict[str, Any]) -> None:
        """The master's answer to a ticket."""
        self._tickets.answered(data)

    # lanes

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
                intended = self._start_of(job, grant, free_ns)
                cut = self._play_family(job, grant.session, intended, grant.skip)
                self._send("session_done", {"run": job.run, "session": grant.session, "cut": cut})
        except gevent.GreenletExit:  # Locust took this lane away: fewer users were asked for
            if self.job is not None and not self.draining:
                self._give_up(job, grant)
            raise
        except Exception as error:  # noqa: BLE001 - a bug of ours must end the run, not leave it waiting for this lane
            self._broke(job, error)
        finally:
            self._lanes -= 1
            if self._lanes == 0:
                self._idle.set()

    def _start_of(self, job: Job, grant: Grant, free_ns: int) -> int:
        """When a session is to start. An open or timed one comes when its user does, whoever is free; a closed one when
        a lane is free, and not before its own start where starts are spread."""
        if job.sessions[grant.session].warmup:
            return free_ns
        arrival_ns = self._at(grant.start_s)
        return arrival_ns if job.schedule["kind"] in ("open", "timed") else max(arrival_ns, free_ns)

    def _broke(self, job: Job, error: Exception) -> None:
        """Something of ours failed: nothing more is dealt, and the run says so."""
        log.debug("a lane broke", exc_info=True)
        words = f"{type(error).__name__}: {error}"
        self.incidents.append(("internal_error", words))
        self._send("stop", {"run": job.run, "why": words})

    def _give_up(self, job: Job, grant: Grant) -> None:
        """The session of a lane that was taken away is cut."""
        player = self._players.pop(grant.session, None)
        if player is not None:
            player.close()
        self._send(f"{grant.kind}_done", {"run": job.run, "session": grant.session, "cut": True})

    def _at(self, offset_s: float) -> int:
        """Endpoint seconds from the start of the run on this worker's clock."""
        assert self.job is not None
        return self._began_ns + int(offset_s / self.job.time_scale * 1e9)

    def _player(self, number: int, skip: int) -> SessionPlayer:
        player = self._players.get(number)
        if player is None:
            assert self.job is not None
            plan = self.job.sessions[number]
            wanted = plan.lead + len(plan.turns)
            records = self._trace.turns(plan.record)[:wanted]
            for position, turn in enumerate(plan.turns, plan.lead):
                if turn.keep is not None:
                    records[position] = msgspec.structs.replace(records[position], keep=turn.keep)
            session = self._sessions[plan.record]
            player = self._players[number] = SessionPlayer(
                self._settings, number, session, records, skip=skip
            )
            self._send("started", {"run": self.job.run, "session": number})
        return player

    def _play_turn(self, job: Job, grant: Grant, free_ns: int) -> None:
        """A sweep's turn. Its connection is closed after the session's last one."""
        player = self._player(grant.session, grant.skip)
        self._play(player, free_ns)
        if player.cut or not player.left:
            self._players.pop(grant.session, None)
            player.close()
        self._send("turn_done", {"run": job.run, "session": grant.session, "cut": player.cut})

    def _play_family(self, job: Job, number: int, intended_ns: int, skip: int = 0) -> bool:
        """Play a session to its end; its children start when the turn that spawned them ends. True: it was cut."""
        if not self._sleep_until(intended_ns):
            return True
        player = self._player(number, skip)
        children: list[gevent.Greenlet] = []
        try:
            cut = self._play_turns(job, player, intended_ns, children)
            gevent.joinall(children)  # what they measure belongs to this lane, however their parent ended
            return cut
        except gevent.GreenletExit:
            gevent.killall(children)
            raise
        finally:
            player.close()
            self._players.pop(number, None)

    def _play_turns(
        self, job: Job, player: SessionPlayer, intended_ns: int, children: list[gevent.Greenlet]
    ) -> bool:
        """All turns that are left; `children` grows by the sub-agents that were started. True: the session was cut."""
        awaited: list[gevent.Greenlet] = []
        first = True
        while player.left:
            turn = player.upcoming
            if not first:
                intended_ns += int(turn.gap_s / job.time_scale * 1e9)
                if self.draining or not self._sleep_until(intended_ns):
                    return True
            first = False
            intended_ns = self._play(player, intended_ns)
            if player.cut:
                return True
            if not player.left or player.upcoming.index != turn.index:  # the last attempt
                spawned = self._spawn_children(job, player.plan, turn.index, intended_ns)
                children += [child for _, child in spawned]
                awaited += [child for waits, child in spawned if waits]
            if awaited:
                gevent.joinall(awaited)
                intended_ns = max(intended_ns, monotonic_ns())
                awaited = []
        return False

    def _spawn_children(
        self, job: Job, plan: PlannedSession, index: int, ended_ns: int
    ) -> list[tuple[bool, gevent.Greenlet]]:
        """Start the sub-agents of a turn, each after its own gap."""
        spawned = []
        for session, after, waits in plan.children:
            if after == index:
                number = self._numbers[session]
                turns = job.sessions[number].turns
                begin = ended_ns + int((turns[0].gap_s if turns else 0.0) / job.time_scale * 1e9)
                spawned.append((waits, gevent.spawn(self._play_child, job, number, begin)))
        return spawned

    def _play_child(self, job: Job, number: int, begin_ns: int) -> None:
        try:
            self._play_family(job, number, begin_ns)
        except Exception as error:  # noqa: BLE001 - as above
            self._broke(job, error)

    def _sleep_until(self, moment_ns: int) -> bool:
        """False when the run drained meanwhile."""
        while not self.draining:
            left = moment_ns - monotonic_ns()
            if left <= 0:
                return True
            gevent.sleep(min(left / 1e9, 0.5))
        return False

    def _play(self, player: SessionPlayer, intended_ns: int) -> int:
        """Play one turn, after waiting for a place among the turns in flight where there is a cap."""
        assert self.job is not None
        if self._first_ns is None:
            self._first_ns = monotonic_ns()
            if self._isolation is not None:
                self._isolation.open()
        capped = self.job.in_flight is not None
        waited_ns = 0
        if capped:
            began_ns = monotonic_ns()
            if self._tickets.ask("enter", self.job.run).get("kind") == "end":
                return intended_ns
            waited_ns = monotonic_ns() - began_ns
        self.tally.counts["in_flight"] += 1
        try:
            return player.play(intended_ns, waited_ns)
        finally:
            self.tally.counts["in_flight"] -= 1
            if capped and self.job is not None:
                self._send("leave", {"run": self.job.run})

    # what was measured

    def _tiers(self, exchange: Exchange) -> Tiers | None:
        return None if self._isolation is None else self._isolation.tiers(exchange)

    def _emit(self, plan: PlannedSession, sample: Sample) -> None:
        job = self.job
        if job is None:  # the run is over and what was cut arrives late
            return
        if plan.warmup:
            if self._warmups is None:
                self._warmups = SampleWriter(self._run_dir / f"warmup-{self.worker}.jsonl")
            self._store(job, self._warmups, sample)
            return
        self._store(job, self._journal, sample)
        self.tally.add(sample, job.time_scale)
        if sample.turn or job.schedule["kind"] in (
            "sweep",
            "closed",
        ):  # else it may have waited for a free lane
            self._health.sent(
                sample.send_ns - sample.intended_ns - sample.cap_wait_ns - (sample.connect_ns or 0)
            )
        if job.stop_after is not None:
            self._send("turn", {"run": job.run})
        self._on_sample(sample)

    def _store(self, job: Job, journal: SampleWriter, sample: Sample) -> None:
        """Write a sample; a disk that refuses ends the run, with what was measured before."""
        try:
            journal.write(sample)
        except JournalError as error:
            self.incidents.append(("lost_samples", str(error)))
            self._send("stop", {"run": job.run, "why": str(error)})
