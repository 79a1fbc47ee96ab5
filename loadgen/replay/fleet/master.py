"""The master's side of a run: deals work, holds the barrier, merges what workers report, and ends the run.

A run on one process has master and worker in the same place. Nothing here plays a turn.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic_ns
from typing import Any

import gevent
import psutil
from gevent.event import Event

from loadgen import __version__
from loadgen.measure.hist import HistogramSet
from loadgen.measure.run import Clock, Endpoint, Incident, Plan, RunInfo, write_run
from loadgen.replay.fleet.allocator import Allocator, Grant, Sessions, Sweep
from loadgen.replay.fleet.scrape import ServerLog
from loadgen.replay.fleet.worker import auth_headers
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
        self._server: ServerLog | None = None
        self._news = Event()
        self._told = False

    # begin

    def begin(self, job: Job, info: RunInfo, run_dir: Path) -> Path:
        """Set up a run; returns the path of its job file, which every worker reads."""
        job.run, job.run_dir = info.run, str(run_dir.resolve())
        path = write_job(run_dir, job)
        write_run(run_dir, info)
        self.info, self.run_dir = info, run_dir
        self.latest, self.finals, self.lost, self._told = {}, set(), set(), False
        if job.schedule["kind"] == "sweep":
            self.allocator = Sweep(job, width=int(job.schedule["width"]))
        else:
            self.allocator = Sessions(job)
        self._server = ServerLog(run_dir / "server.jsonl", Target.parse(job.url), auth_headers(job))
        self._server.start()
        info.start = Clock(mono_ns=monotonic_ns(), wall_ns=time.time_ns())
        return path

    @property
    def running(self) -> bool:
        return self.info is not None and self.info.state == "running"

    # messages of workers

    def on_ask(self, worker: str, data: dict[str, Any]) -> None:
        if self.allocator is None or self.info is None or data["run"] != self.info.run:
            self._send(worker, "grant", {"ticket": data["ticket"], "kind": "end", "parked": False})
            return
        self.allocator.ask(worker, data["ticket"])
        self._pump(data["ticket"])

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
        if self._current(data) and isinstance(self.allocator, Sessions):
            self.allocator.session_done(data["session"], cut=data["cut"])
            self._pump()

    def on_snapshot(self, worker: str, data: dict[str, Any]) -> None:
        """Keep the newest cumulative snapshot of each worker; old and foreign ones do no harm."""
        if not data or not self._current(data):
            return
        known = self.latest.get(worker)
        if known is None or data["seq"] > known["seq"]:
            self.latest[worker] = data
        if data["final"]:
            self.finals.add(worker)
        self._news.set()

    def on_stop(self, worker: str, data: dict[str, Any]) -> None:
        """A worker cannot go on (its disk is full): nothing more is dealt."""
        if self._current(data) and self.allocator is not None:
            self.allocator.drain()
            self._pump()
            self._tell_finished()

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
        gone = [session for session in allocator.lost_sessions if session not in before]
        self._incident("lost_worker", f"worker {self._name(worker)} went missing with {len(gone)} started sessions")
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
            self._send(worker, "grant", {"ticket": ticket, **_as_data(grant), "parked": ticket != fresh})
        if self.allocator.finished:
            self._tell_finished()

    def _next_round(self, allocator: Sweep) -> None:
        """The barrier: every turn of the round has ended and none of the next has begun."""
        if allocator is not self.allocator or not allocator.round_over or allocator.draining:
            return
        if self._server is not None:
            self._server.take(f"round:{allocator.round}")
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
            self._pump()

    def wait_for_finals(self, workers: Callable[[], set[str]], timeout_s: float) -> None:
        """Wait until every worker's final snapshot is here. `workers` gives those that are still connected."""
        deadline = time.monotonic() + timeout_s
        while (missing := (workers() | set(self.latest)) - self.lost - self.finals) and time.monotonic() < deadline:
            self._news.clear()
            self._news.wait(0.05)
        if self.info is not None and missing:
            self._incident("missing_final", f"no final snapshot came from {', '.join(self._name(w) for w in sorted(missing))}")

    def finish(self, *, interrupted: bool, stopped_by: str | None) -> RunInfo | None:
        """Write `run.json` for good. A second call does nothing."""
        info, run_dir, allocator = self.info, self.run_dir, self.allocator
        if info is None or run_dir is None or allocator is None or info.state != "running":
            return None
        if self._server is not None:
            self._server.stop()
        info.end = Clock(mono_ns=monotonic_ns(), wall_ns=time.time_ns())
        complete = allocator.finished and not allocator.draining
        info.state = "finished" if complete else "interrupted" if interrupted else "cut"
        if stopped_by:
            info.schedule["stopped_by"] = stopped_by
        for snapshot in self.latest.values():
            info.clocks[snapshot["worker"]] = Clock(mono_ns=snapshot["mono_ns"], wall_ns=snapshot["wall_ns"])
            for code, detail in snapshot["incidents"]:
                self._incident(code, detail)
        write_run(run_dir, info)
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
    return {"kind": grant.kind, "session": grant.session, "position": grant.position, "start_s": grant.start_s}


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
        },
        seed=job.seed,
        endpoint=Endpoint(
            url=job.url,
            model=job.model,
            api=job.api,
            max_model_len=prepared["max_model_len"],
            server=prepared["server"],
            time_scale=job.time_scale,
            simulated=prepared["simulated"],
        ),
        plan=Plan(
            sessions=len(job.sessions),
            turns=job.turns,
            prompt_tokens=job.prompt_tokens,
            output_tokens=job.output_tokens,
            turns_by_session={session.id: len(session.turns) for session in job.sessions},
        ),
        template=prepared["template"],
        notes=prepared["notes"],
    )
