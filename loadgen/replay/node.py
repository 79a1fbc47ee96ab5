"""One Locust process's part of a run: what it does when Locust starts, stops and quits, and the messages in between.

Message kinds that go to the master start with `lg-m-`, those to a worker with `lg-w-`: Locust's local runner delivers
to itself, and the names must not meet.
"""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import gevent
from locust.runners import STATE_MISSING, LocalRunner, MasterRunner, WorkerRunner

from loadgen.errors import EXIT_INTERNAL, EXIT_INVALID, InputError, LoadgenError
from loadgen.measure.sample import Sample
from loadgen.replay import options as run_options
from loadgen.replay import schedule
from loadgen.replay.conclude import conclude
from loadgen.replay.fleet import spawning, stages
from loadgen.replay.fleet.master import Master, describe_run
from loadgen.replay.fleet.rundir import lock, new_run_dir
from loadgen.replay.fleet.worker import Worker
from loadgen.replay.handover import HANDOVER_ENV, Handover, copy_of, prepare_apart, read_handover
from loadgen.replay.job import Job
from loadgen.replay.progress import Progress
from loadgen.replay.transport import hide
from loadgen.replay.wire.target import Target

log = logging.getLogger("loadgen")

TO_MASTER = (
    "ask",
    "started",
    "turn_done",
    "session_done",
    "enter",
    "leave",
    "withdraw",
    "give_back",
    "turn",
    "fetch",
    "ship",
    "snapshot",
    "stop",
)
DRAIN_S = 120.0  # a cold 140K turn may take this long to end
FLUSH_S = 2.0
FINALS_S = 5.0
_POLL_S = 0.5
_REPORT_S = 1.0


class Node:
    """One process's part of a run. Made by Locust's `init` event; `environment.loadgen` is it."""

    def __init__(self, environment: Any) -> None:
        self.environment = environment
        self.runner = environment.runner
        self.is_master = isinstance(self.runner, MasterRunner | LocalRunner)
        self.is_worker = isinstance(self.runner, WorkerRunner | LocalRunner)
        self.handover: Handover | None = None
        self.master: Master | None = None
        self.worker: Worker | None = None
        self.exit_code: int | None = None
        self._could_not_begin: int | None = None
        self._known_workers: set[str] = set()
        self._draining = False
        self._runs = 0
        self._lock: IO[bytes] | None = None  # held while a run folder is written
        self._stages: stages.Stages | None = None
        self._progress: Progress | None = None
        options = environment.parsed_options
        if self.is_master:
            self.master = Master(self._to_worker, self._all_played)
            for kind in TO_MASTER:
                self.runner.register_message(f"lg-m-{kind}", self._from_worker(kind))
            if isinstance(self.runner, MasterRunner):
                gevent.spawn(self._watch_workers)
            if os.environ.get(HANDOVER_ENV):
                gevent.spawn(self._watch_launcher, os.getppid())
            if environment.host or os.environ.get(HANDOVER_ENV):
                self.handover = self._prepared()
            if options is not None and options.headless:
                self._set_lanes(options)
            if self.handover is not None and self.handover.job.schedule.get("stages"):
                self._stages = self._shape(self.handover.job, options)
        if self.is_worker:
            self.worker = Worker(self._to_master, self._fire)
            spawning.quicken()
            self.runner.register_message("lg-w-answer", self._on_answer)
            self.runner.register_message("lg-w-drain", self._on_drain, concurrent=True)
            if self.is_master:
                gevent.spawn(self._report_to_itself)

    # messages

    def _to_worker(self, worker: str, kind: str, data: dict[str, Any]) -> None:
        self.runner.send_message(f"lg-w-{kind}", data, client_id=worker)

    def _to_master(self, kind: str, data: dict[str, Any]) -> None:
        self.runner.send_message(f"lg-m-{kind}", data)

    def _from_worker(self, kind: str) -> Callable[..., None]:
        handler = getattr(self.master, f"on_{kind}")

        def receive(environment: Any, msg: Any, **_: Any) -> None:
            handler(msg.node_id, msg.data)

        return receive

    def _on_answer(self, environment: Any, msg: Any, **_: Any) -> None:
        assert self.worker is not None
        self.worker.answered(msg.data)

    def _on_drain(self, environment: Any, msg: Any, **_: Any) -> None:
        assert self.worker is not None
        self._deliver(msg.data["deadline_s"], msg.data["run"])

    def _deliver(self, deadline_s: float, run: str = "") -> None:
        """A worker's end of a run: everything is on disk before the master hears that it is."""
        assert self.worker is not None
        if self.worker.job is None:
            if run:  # it joined too late to take part; the master need not wait for it
                self._to_master("snapshot", {"run": run, "idle": True})
            return
        self.worker.drain(deadline_s)
        final = self.worker.snapshot(final=True)
        self.worker.end()
        self._to_master("snapshot", final)

    # begin

    def _prepared(self) -> Handover:
        """What `loadgen run` prepared, or our own preparation, in a process without gevent's patches."""
        try:
            known = os.environ.pop(HANDOVER_ENV, None)
            if known:
                return read_handover(Path(known))
            options = run_options.resolve(vars(self.environment.parsed_options))
            options.header = hide(options.header)
            return prepare_apart(options, self.environment.host)
        except LoadgenError as error:
            print(f"loadgen: {error}", file=sys.stderr)
            raise SystemExit(error.exit_code) from None

    def _set_lanes(self, options: Any) -> None:
        """Locust's users are lanes. A sweep has its width of them; open and timed as many as the in-flight cap allows."""
        assert self.handover is not None
        job = self.handover.job
        kind = job.schedule["kind"]
        roots = sum(not (session.child or session.warmup) for session in job.sessions)
        if kind == "sweep":
            width = int(job.schedule["width"])
            if options.num_users not in (None, width):
                raise _refuse(
                    f"-u {options.num_users} has no effect with --schedule sweep; turns in flight are --width"
                )
            options.num_users = width
        elif options.num_users is None:
            options.num_users = 1 if kind == "closed" else min(roots, 1000)
        if options.spawn_rate is None:
            options.spawn_rate = spawning.rate(options.num_users)

    def _shape(self, job: Job, options: Any) -> stages.Stages:
        try:
            shape = stages.install(self.environment, job.schedule["stages"], job.time_scale)
        except InputError as error:
            raise _refuse(str(error)) from None
        if options.num_users not in (None, 1):
            raise _refuse(f"-u {options.num_users} has no effect with --stages")
        options.num_users = shape.most
        return shape

    def begin(self) -> None:
        """`test_start`: the master makes the run folder, every worker gets ready. Locust logs what a listener raises and
        goes on, with lanes that never get work: a run that cannot begin is ended here."""
        self._could_not_begin = None
        try:
            if self.master is not None:
                self._begin_run()
            if self.worker is not None:
                index = max(0, getattr(self.runner, "worker_index", 0))
                options = self.environment.parsed_options
                self.worker.begin(Path(options.loadgen_job), f"w{index}", options.num_users or 1)
            return
        except (LoadgenError, ValueError) as error:
            print(f"loadgen: {error}", file=sys.stderr)
            code = EXIT_INVALID
        except Exception:
            log.exception("the run could not begin; please report this")
            code = EXIT_INTERNAL
        self._could_not_begin = self.environment.process_exit_code = code
        served = self.master is not None and not self.environment.parsed_options.headless
        gevent.spawn(self.runner.stop if served else self.runner.quit)

    def _begin_run(self) -> None:
        assert self.master is not None
        host = self.environment.host
        elsewhere = self.handover is not None and host and Target.parse(host).url != self.handover.job.urls[0]
        again = (
            self._runs > 0
        )  # the web UI starts a new run, which must not meet the prompts of the one before
        self._runs += 1
        if self.handover is None or elsewhere or (again and self.handover.job.rendered):
            self.handover = self._prepared()
        handover, self._draining = copy_of(self.handover), False
        if again and not handover.job.rendered:
            handover.job.nonce_seed = uuid.uuid4().hex
        given = handover.run_dir if not again else None
        run_dir = Path(given) if given else new_run_dir(Path(handover.out))
        try:
            run_dir.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(f"{run_dir} cannot be made: {error.strerror}") from None
        self._lock = lock(run_dir)
        lanes = self.environment.parsed_options.num_users or getattr(self.runner, "target_user_count", 0) or 0
        if handover.resumed is None and handover.job.schedule.get("mid_start"):
            schedule.start_in_middle(handover.job, lanes)
        info = handover.resumed or describe_run(
            handover.job, handover.facts, run_dir.name, handover.arguments
        )
        path = self.master.begin(handover.job, info, run_dir, lanes=lanes, done_before=handover.done)
        self.handover.resumed = None
        self.environment.parsed_options.loadgen_job = str(path)
        self._progress = Progress(self.master)

    # the end

    def _all_played(self) -> None:
        """Everything is played: stop Locust, unless it is stopping already."""
        if self._draining:
            return
        if self.environment.parsed_options.headless:
            self.runner.quit()
        else:
            self.runner.stop()

    def stopping(self) -> None:
        """`test_stopping`: blocks until every turn under way has ended and every worker has delivered."""
        if self.master is None or not self.master.running or self._draining:
            return
        self._draining = True
        time_is_up = (self.environment.parsed_options.run_time or self._stages) and not self._finished()
        self._drain(DRAIN_S)
        self._finish(interrupted=False, stopped_by="time" if time_is_up else None)

    def quitting(self) -> None:
        """Locust goes down. After a signal nobody drained: cut what is under way, keep what was measured."""
        if isinstance(self.runner, WorkerRunner):
            self._deliver(0.0)
            return
        if self.master is not None and self.master.running:
            self._drain(FLUSH_S)
            self._finish(interrupted=True, stopped_by="signal")
        code = self._could_not_begin or self.exit_code
        if code is not None:
            self.environment.process_exit_code = code

    def _finished(self) -> bool:
        return (
            self.master is not None and self.master.allocator is not None and self.master.allocator.finished
        )

    def _drain(self, deadline_s: float) -> None:
        assert self.master is not None
        if not self._finished():
            self.master.drain()
        if self.worker is not None:
            self._deliver(deadline_s)
        else:
            run = self.master.info.run if self.master.info is not None else ""
            self.runner.send_message("lg-w-drain", {"deadline_s": deadline_s, "run": run})
            self.master.wait_for_finals(self._alive, deadline_s + FINALS_S)

    def _finish(self, *, interrupted: bool, stopped_by: str | None) -> None:
        """Close the run, build its report and decide the exit code."""
        assert self.master is not None
        if self._progress is not None:
            self._progress.close()
        if self.master.finish(interrupted=interrupted, stopped_by=stopped_by) is not None:
            self.exit_code = conclude(
                self.master, self.handover.slo if self.handover else None, interrupted=interrupted
            )

    # workers that come and go

    def _alive(self) -> set[str]:
        return {client.id for client in self.runner.clients.all if client.state != STATE_MISSING}

    def _report_to_itself(self) -> None:
        """Workers report with Locust's statistics; a runner that is master and worker in one never does."""
        assert self.master is not None
        assert self.worker is not None
        while True:
            gevent.sleep(_REPORT_S)
            if self.master.running and self.worker.job is not None and not self._draining:
                self._to_master("snapshot", self.worker.snapshot())

    def _watch_workers(self) -> None:
        """Locust has no event for a worker that went missing."""
        assert self.master is not None
        while True:
            gevent.sleep(_POLL_S)
            alive = self._alive()
            if self.master.running and not self._draining:
                for worker in self._known_workers - alive:
                    log.warning("worker %s went missing", worker)
                    self.master.worker_lost(worker)
            self._known_workers = alive

    def _watch_launcher(self, launcher: int) -> None:
        """`loadgen run` was killed and cannot say so: end as after a signal."""
        while os.getppid() == launcher:
            gevent.sleep(_POLL_S)
        os.kill(os.getpid(), signal.SIGTERM)

    # what Locust's own tables show

    def _fire(self, sample: Sample) -> None:
        """One row per class in Locust's tables. They round to two digits; nothing of ours reads them."""
        assert self.worker is not None
        assert self.worker.job is not None
        scale = self.worker.job.time_scale
        first = sample.first_token_ns
        self.environment.events.request.fire(
            request_type="TTFT",
            name=sample.klass.value,
            response_time=None if first is None else (first - sample.send_ns) * scale / 1e6,
            response_length=sample.output_tokens or 0,
            exception=_Failed(sample.error.value) if sample.error is not None else None,
            context={"session": sample.session, "turn": sample.turn},
            start_time=time.time(),
            response=None,
        )


class _Failed(Exception):
    """A failed turn in Locust's table: constant text, since Locust keeps one row per text."""


def _refuse(sentence: str) -> SystemExit:
    print(f"loadgen: {sentence}", file=sys.stderr)
    return SystemExit(2)
