"""The master's side of a run: deals work, holds the barrier, merges what workers report, and ends the run.

A run on one process has master and worker in the same place. Nothing here plays a turn.
"""

from __future__ import annotations

import platform
import shutil
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
import psutil
from gevent.event import Event

from loadgen import __version__
from loadgen.errors import InputError
from loadgen.measure.hist import HistogramSet
from loadgen.measure.run import Clock, Endpoint, Incident, Plan, RunInfo, write_run
from loadgen.replay.fleet.allocator import Allocator, Grant, Sessions, Sweep
from loadgen.replay.fleet.remote import Sink, Source
from loadgen.replay.fleet.scrape import ServerLog
from loadgen.replay.job import Job, write_job
from loadgen.replay.wire.target import Target

SendTo = Callable[[str, str, dict[str, Any]], None]
"""(worker id, kind, data)"""


class Master:
    """One run at a time. `on_finished` is called, in a greenlet of its own, when everything is played."""

    def __init__(self, send: SendTo, on_finished: Callable[[], None]) -> None:
        self._send = send
        self._on_finished = on_finished
        self.allocator: Allocator | None = None
        self.info: RunInfo | None = None
        self.run_dir: Path | None = None
        self.latest: dict[str, dict[str, Any]] = {}  # snapshot by worker id
        self.finals: set[str] = set()
        self.lost: set[str] = set()
        self._servers: list[ServerLog] = []
        self._source: Source | None = None
        self._news = Event()
        self._told = False

    # begin

    def begin(
        self,
        job: Job,
        info: RunInfo,
        run_dir: Path,
        *,
        lanes: int = 0,
        done_before: Mapping[str, int] | None = None,
    ) -> Path:
        """Set up a run; returns the path of its job file, which every worker reads.

        `lanes` is how many sessions are live at once; `done_before` tells for a resumed run how many turns are over.
        """
        job.run, job.run_dir = info.run, str(run_dir.resolve())
        path = write_job(run_dir, job)
        self.info, self.run_dir = info, run_dir
        self.latest, self.finals, self.lost, self._told = {}, set(), set(), False
        self._source = None
        if job.schedule["kind"] == "sweep":
            self.allocator = Sweep(job, done_before or {}, width=int(job.schedule["width"]))
        else:
            self.allocator = Sessions(job, done_before or {})
        self._cap = job.in_flight
        self._in_flight: dict[str, int] = {}
        self._entering: deque[tuple[str, str]] = deque()
        self._turns_left = job.stop_after
        self._lanes = lanes
        self._servers = [ServerLog(run_dir / "server.jsonl", Target.parse(url), job) for url in job.urls]
        for server in self._servers:
            server.start()
        info.start = info.start or Clock(mono_ns=monotonic_ns(), wall_ns=time.time_ns())
        write_run(run_dir, info)
        return path

    @property
    def running(self) -> bool:
        return self.info is not None and self.info.state == "running"

    # messages of workers

    def on_ask(self, worker: str, data: dict[str, Any]) -> None:
        if self.allocator is None or self.info is None or data["run"] != self.info.run:
            self._send(worker, "answer", {"ticket": data["ticket"], "kind": "end", "parked": False})
            return
        self.allocator.ask(worker, data["ticket"])
        self._pump(data["ticket"])

    def on_withdraw(self, worker: str, data: dict[str, Any]) -> None:
        """The lane behind a ticket was taken away while it waited."""
        if self._current(data) and self.allocator is not None:
            self.allocator.withdraw(data["ticket"])
            self._entering = deque(entry for entry in self._entering if entry[1] != data["ticket"])

    def on_give_back(self, worker: str, data: dict[str, Any]) -> None:
        """A grant arrived where its lane was gone."""
        if self._current(data) and self.allocator is not None:
            self.allocator.give_back(data["session"])
            self._pump()

    def on_started(self, worker: str, data: dict[str, Any]) -> None:
        if self._current(data) and self.allocator is not None:
            self.allocator.started(data["session"])

    def on_turn_done(self, worker: str, data: dict[str, Any]) -> None:
        if self._current(data) and isinstance(self.allocator, Sweep):
            self.allocator.turn_done(data["session"], cut=data["cut"])
            if self.allocator.round_over:
                gevent.spawn(self._next_round, self.allocator)
            else:
                self._pump()

    def on_session_done(self, worker: str, data: dict[str, Any]) -> None:
        if self._current(data) and self.allocator is not None:
            self.allocator.session_done(data["session"], cut=data["cut"])
            self._pump()

    def on_enter(self, worker: str, data: dict[str, Any]) -> None:
        """A turn wants a place among those in flight."""
        if not self._current(data) or self.allocator is None or self.allocator.draining:
            self._send(worker, "answer", {"ticket": data["ticket"], "kind": "end"})
            return
        self._entering.append((worker, data["ticket"]))
        self._admit()

    def on_leave(self, worker: str, data: dict[str, Any]) -> None:
        if self._current(data):
            self._in_flight[worker] = self._in_flight.get(worker, 0) - 1
            self._admit()

    def _admit(self) -> None:
        while self._entering and self._cap is not None and sum(self._in_flight.values()) < self._cap:
            worker, ticket = self._entering.popleft()
            self._in_flight[worker] = self._in_flight.get(worker, 0) + 1
            self._send(worker, "answer", {"ticket": ticket, "kind": "go"})

    def on_turn(self, worker: str, data: dict[str, Any]) -> None:
        """A turn was measured; told only where the run ends after a number of them."""
        if self._current(data) and self._turns_left is not None:
            self._turns_left -= 1
            if self._turns_left == 0:
                self.stop_dealing("turns")

    def stop_dealing(self, why: str) -> None:
        """Let what is under way end, then end the run."""
        assert self.info is not None
        self.info.schedule.setdefault("stopped_by", why)
        self._tell_finished()

    def on_fetch(self, worker: str, data: dict[str, Any]) -> None:
        """A worker on another machine asks for a piece of a file."""
        if self._current(data) and self._source is None:
            assert self.run_dir is not None
            assert self.allocator is not None
            self._source = Source(self.run_dir, self.allocator.job)
        piece = (
            self._source.piece(data["name"], data["offset"]) if self._source and self._current(data) else {}
        )
        self._send(worker, "answer", {"ticket": data["ticket"], **piece})

    def on_ship(self, worker: str, data: dict[str, Any]) -> None:
        """A worker on another machine sends what it measured."""
        if not self._current(data) or self.run_dir is None:
            self._send(worker, "answer", {"ticket": data["ticket"], "kind": "end"})
            return
        try:
            have = Sink(self.run_dir).take(data["name"], data["offset"], data["data"])
        except OSError as error:
            self._incident("lost_samples", f"{self.run_dir} cannot be written: {error.strerror}")
            self._send(worker, "answer", {"ticket": data["ticket"], "kind": "end"})
            return
        self._send(worker, "answer", {"ticket": data["ticket"], "have": have})

    def on_snapshot(self, worker: str, data: dict[str, Any]) -> None:
        """Keep the newest cumulative snapshot of each worker; old and foreign ones do no harm."""
        if not data or not self._current(data):
            return
        if data.get("idle"):  # it never took part in this run
            self.finals.add(worker)
            self._news.set()
            return
        known = self.latest.get(worker)
        if known is None or data["seq"] > known["seq"]:
            self.latest[worker] = data
        if data["final"]:
            self.finals.add(worker)
        self._news.set()

    def on_stop(self, worker: str, data: dict[str, Any]) -> None:
        """A worker cannot go on (its disk is full): nothing more is dealt."""
        if self._current(data):
            self.stop_dealing(str(data["why"]))

    def worker_lost(self, worker: str) -> None:
        """A worker went missing. What it had started is lost; what it had not is dealt again."""
        if not self.running or self.allocator is None or worker in self.lost:
            return
        self.lost.add(worker)
        assert self.info is not None
        allocator = self.allocator
        before = set(allocator.lost_sessions)
        if isinstance(allocator, Sweep | Sessions):
            allocator.worker_lost(worker)
        self._in_flight.pop(worker, None)
        self._entering = deque(entry for entry in self._entering if entry[0] != worker)
        self._admit()
        gone = [session for session in allocator.lost_sessions if session not in before]
        self._incident(
            "lost_worker", f"worker {self._name(worker)} went missing with {len(gone)} started sessions"
        )
        if isinstance(allocator, Sweep) and allocator.round_over:
            gevent.spawn(self._next_round, allocator)
        self._pump()

    def _name(self, worker: str) -> str:
        return str(self.latest.get(worker, {}).get("worker", worker))

    def _current(self, data: dict[str, Any]) -> bool:
        return self.info is not None and data.get("run") == self.info.run

    def _incident(self, code: str, detail: str) -> None:
        assert self.info is not None
        self.info.incidents.append(Incident(code=code, detail=detail))

    # dealing

    def _pump(self, fresh: str = "") -> None:
        """Answer what can be answered. `fresh` is the ticket that was asked just now; all others were parked."""
        assert self.allocator is not None
        for worker, ticket, grant in list(self.allocator.pump()):
            self._send(worker, "answer", {"ticket": ticket, **_as_data(grant), "parked": ticket != fresh})
        self._mark_steady()
        if self.allocator.finished:
            self._tell_finished()

    def _mark_steady(self) -> None:
        """The steady state of a closed schedule: from when all lanes have a session until a lane finds none."""
        assert self.info is not None
        assert self.allocator is not None
        if (
            not isinstance(self.allocator, Sessions)
            or self._lanes < 1
            or self.info.schedule["kind"] != "closed"
        ):
            return
        now = Clock(mono_ns=monotonic_ns(), wall_ns=time.time_ns())
        if self.info.steady_from is None and self.allocator.in_flight >= self._lanes:
            self.info.steady_from = now
        elif self.info.steady_from is not None and self.info.steady_to is None and self.allocator.asking:
            self.info.steady_to = now

    def _next_round(self, allocator: Sweep) -> None:
        """The barrier: every turn of the round has ended and none of the next has begun."""
        if allocator is not self.allocator or not allocator.round_over or allocator.draining:
            return
        for server in self._servers:
            server.take(f"round:{allocator.round}")
        allocator.open_round()
        self._pump()

    def _tell_finished(self) -> None:
        if not self._told:
            self._told = True
            gevent.spawn(self._on_finished)

    # the end

    def drain(self) -> None:
        """Deal nothing more."""
        if self.allocator is not None:
            self.allocator.drain()
            for worker, ticket in self._entering:
                self._send(worker, "answer", {"ticket": ticket, "kind": "end"})
            self._entering.clear()
            self._pump()

    def wait_for_finals(self, workers: Callable[[], set[str]], timeout_s: float) -> None:
        """Wait until every worker's final snapshot is here. `workers` gives those that are still connected."""
        deadline = time.monotonic() + timeout_s
        while (
            missing := (workers() | set(self.latest)) - self.lost - self.finals
        ) and time.monotonic() < deadline:
            self._news.clear()
            self._news.wait(0.05)
        if self.info is not None and missing:
            self._incident(
                "missing_final",
                f"no final snapshot came from {', '.join(self._name(w) for w in sorted(missing))}",
            )

    def finish(self, *, interrupted: bool, stopped_by: str | None) -> RunInfo | None:
        """Write `run.json` for good. A second call does nothing."""
        info, run_dir, allocator = self.info, self.run_dir, self.allocator
        if info is None or run_dir is None or allocator is None or info.state != "running":
            return None
        for server in self._servers:
            server.stop()
        info.end = Clock(mono_ns=monotonic_ns(), wall_ns=time.time_ns())
        complete = allocator.finished and not allocator.draining
        info.state = "finished" if complete else "interrupted" if interrupted else "cut"
        if stopped_by:
            info.schedule.setdefault("stopped_by", stopped_by)
        planned_end = (
            info.schedule.get("stopped_by") in ("time", "turns") and info.schedule["kind"] != "sweep"
        )
        if planned_end and not interrupted:
            info.state = "finished"
        for snapshot in self.latest.values():
            info.clocks[snapshot["worker"]] = Clock(mono_ns=snapshot["mono_ns"], wall_ns=snapshot["wall_ns"])
            for code, detail in snapshot["incidents"]:
                self._incident(code, detail)
        if allocator.job.rendered is not None:
            shutil.rmtree(allocator.job.rendered, ignore_errors=True)
        try:
            write_run(run_dir, info)
        except InputError as error:
            self._incident("lost_samples", str(error))
        return info

    def merged(self) -> HistogramSet:
        """All workers' histograms in one."""
        out = HistogramSet()
        for snapshot in self.latest.values():
            out.merge(snapshot["histograms"])
        return out

    def totals(self) -> dict[str, int]:
        out: dict[str, int] = {}
        for snapshot in self.latest.values():
            for name, value in snapshot["counts"].items():
                out[name] = out.get(name, 0) + value
        return out


def _as_data(grant: Grant) -> dict[str, Any]:
    return {"kind": grant.kind, "session": grant.session, "skip": grant.skip, "start_s": grant.start_s}


def describe_run(job: Job, prepared: dict[str, Any], run: str, arguments: list[str]) -> RunInfo:
    """A fresh `run.json` of a job. `prepared` holds what preparation found (facts for the record)."""
    return RunInfo(
        run=run,
        arm=job.arm,
        rep=job.rep,
        experiment=job.experiment,
        created=datetime.now(UTC).isoformat(timespec="milliseconds"),
        versions={"loadgen": __version__, "python": sys.version.split()[0], **prepared.get("versions", {})},
        machine={
            "system": platform.system(),
            "kernel": platform.release(),
            "processor": platform.machine(),
            "cpus": psutil.cpu_count() or 0,
            "memory_bytes": psutil.virtual_memory().total,
        },
        arguments=arguments,
        workload=prepared["workload"],
        schedule=dict(job.schedule),
        policy={
            "answers": job.answers,
            "forced_output": not job.natural_output,
            "timeouts_s": list(job.timeouts_s),
            "isolated": job.isolate,
            "nonce": prepared["nonce"],
            "cold_limit_tokens": prepared["cold_limit_tokens"],
            "slo_ttft_s": prepared["slo_ttft_s"],
        },
        seed=job.seed,
        endpoint=Endpoint(
            url=" ".join(job.urls),
            model=job.model,
            api=job.api,
            max_model_len=prepared["max_model_len"],
            server=prepared["server"],
            time_scale=job.time_scale,
            simulated=prepared["simulated"],
        ),
        plan=Plan(
            sessions=sum(not session.warmup for session in job.sessions),
            turns=job.turns,
            prompt_tokens=job.prompt_tokens,
            output_tokens=job.output_tokens,
            turns_by_session={
                session.id: len({turn.index for turn in session.turns})
                for session in job.sessions
                if not session.warmup
            },
        ),
        template=prepared["template"],
        notes=prepared["notes"],
    )
