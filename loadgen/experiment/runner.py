"""Executes a plan: server up, preparation, `loadgen run` as a process of its own, server down, state saved."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

from loadgen import lifeline
from loadgen.doctor.server_state import identify
from loadgen.errors import EXIT_INPUT, EXIT_INTERRUPTED, InputError, LoadgenError
from loadgen.experiment.order import Step
from loadgen.experiment.prepare import prepare
from loadgen.experiment.server import Server
from loadgen.experiment.spec import Experiment, Value, run_options
from loadgen.experiment.state import Result, State, now, save
from loadgen.replay.endpoint import Api, api_key
from loadgen.replay.wire.target import Target
from loadgen.report.summary import SUMMARY_FILE
from loadgen.report.validity import Code

_RETRIES = (
    1  # of a run that broke off or that this client spoilt; one that is invalid for the server's part stays
)
_GIVE_UP = 2  # steps in a row of which nothing came: something is wrong that the next one will not cure
_CLIENTS = {Code.CLIENT_SATURATED, Code.LOOP_LAG, Code.SEND_LATE, Code.COALESCED, Code.LATE_SIMULATED_TOKENS}
Say = Callable[[str], None]


class Runner:
    """`run` goes through the plan and leaves out what is done. `yes` lets it send to hosts that are not local."""

    def __init__(self, experiment: Experiment, state: State, folder: Path, *, yes: bool, say: Say) -> None:
        self._experiment, self._state, self._folder = experiment, state, folder
        self._yes, self._say = yes, say
        self._servers: dict[str, Server] = {}
        self._previous: str | None = None

    def run(self) -> None:
        """Execute what is left, until the end or until steps break off one after another.

        Raises InputError when `loadgen run` rejects a run; KeyboardInterrupt stops all servers.
        """
        left = [step for step in self._state.plan if self._state.done(step) is None]
        broken = 0
        try:
            for step in left:
                self._say(f"run {step.index + 1} of {len(self._state.plan)}: {step.folder}")
                ended = False
                for _ in range(1 + _RETRIES):
                    result = self._attempt(step)
                    ended |= result.code in (0, 3)
                    if result.code in (0, 3) and not result.spoilt:
                        break
                broken = 0 if ended else broken + 1
                if broken == _GIVE_UP:
                    self._say(f"{broken} steps in a row broke off: stopped here")
                    break
        finally:
            for server in self._servers.values():
                server.stop()

    def _attempt(self, step: Step) -> Result:
        attempt = self._state.attempts(step)
        name = step.folder if attempt == 0 else f"{step.folder}.a{attempt}"
        result = Result(
            index=step.index, attempt=attempt, folder=name, started=now(), previous_arm=self._previous
        )
        self._state.results.append(result)
        begun = time.monotonic()
        try:
            self._measure(step, result)
        except InputError:
            raise
        except LoadgenError as error:
            result.error = str(error)
            self._say(f"  {error}")
        finally:
            result.seconds = time.monotonic() - begun
            self._previous = step.arm
            save(self._state, self._folder)
        return result

    def _measure(self, step: Step, result: Result) -> None:
        workload = self._experiment.workload(step.arm, step.cell)
        options, _ = run_options(workload)
        key = api_key(options.api_key_env)
        server, fresh = self._serve(step.arm, key)
        api = Api(Target.parse(server.url), key)
        scope = f"{self._state.id}/{step.cell}/a{result.attempt}"  # no two runs ever share a nonce
        turns = self._experiment.spec.prepare.warmup_turns
        shape: dict[str, Value] = {**workload, "sessions": 1, "turns": max(turns, 1)}

        def warm_up() -> int:
            folder = self._folder / ".warm-up"
            code = self._loadgen(
                step, server.url, shape, f"{scope}/warm-up", folder, self._folder / "warm-up.log"
            )
            shutil.rmtree(folder, ignore_errors=True)
            return code

        shutil.rmtree(self._folder / ".warm-up", ignore_errors=True)  # of a run that was killed

        beside = self._experiment.arm(step.arm).store
        store = Api(Target.parse(beside), None) if beside else None
        steps = self._experiment.spec.prepare
        result.preparation = prepare(api, steps, fresh=fresh, warm_up=warm_up, store=store)
        result.server = identify(api, options.model)
        folder = self._folder / result.folder
        log = self._folder / f"{result.folder}.log"
        code = self._loadgen(step, server.url, workload, scope, folder, log)
        result.code = code
        result.spoilt = spoilt(folder)
        if result.spoilt:
            self._say(f"  this client spoilt it ({', '.join(result.spoilt)}): repeated")
        if code == EXIT_INTERRUPTED:
            raise KeyboardInterrupt
        if code == EXIT_INPUT and server.answers(key):  # rejected for what it is, not for a server that died
            raise InputError(f"{step.folder}: {_last_line(log)}")
        if code not in (0, 3):
            raise LoadgenError(f"{step.folder} broke off with code {code}: {_last_line(log)}")

    def _serve(self, arm: str, key: str | None) -> tuple[Server, bool]:
        """The arm's server, up, and whether it was started just now."""
        policy = self._experiment.spec.prepare.restart
        if policy != "never":
            for name, other in self._servers.items():
                if name != arm or policy == "run":
                    other.stop()
        server = self._servers.get(arm)
        if server is None:
            log = self._folder / f"server-{arm}.log"
            server = self._servers[arm] = Server(self._experiment.arm(arm), log)
        starts = server.starts
        server.start(key)
        return server, server.starts > starts

    def _loadgen(
        self, step: Step, url: str, workload: dict[str, Value], scope: str, folder: Path, log: Path
    ) -> int:
        """One `loadgen run`, its output in `log`; returns its exit code. An interrupt is passed on and waited for."""
        _, words = run_options(workload)
        command = [sys.executable, "-m", "loadgen", "run", "--host", url, *words]
        command += [
            "--arm",
            step.arm,
            "--rep",
            str(step.rep),
            "--experiment",
            scope,
            "--run-dir",
            str(folder),
        ]
        if self._yes:
            command.append("--yes")
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as out:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=out,
                stderr=subprocess.STDOUT,
                env=lifeline.tied(),
                start_new_session=True,
            )
            assert process.stdin is not None
            try:
                return process.wait()
            except (KeyboardInterrupt, SystemExit):
                os.killpg(process.pid, signal.SIGINT)  # it drains and keeps its samples
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                raise
            finally:
                process.stdin.close()


def spoilt(folder: Path) -> list[str]:
    """The reasons for which a run is invalid when all of them lie with this client; empty when it is valid or the server had a part."""
    try:
        summary = json.loads((folder / SUMMARY_FILE).read_bytes())
        codes = [str(one["code"]) for one in summary["reasons"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return codes if codes and set(codes) <= _CLIENTS else []


def _last_line(log: Path) -> str:
    lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "(no output)"
