"""Start Locust for a prepared run, in a process of its own, and wait for it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from loadgen import lifeline, paths
from loadgen.errors import EXIT_INTERRUPTED, InputError, LoadgenError
from loadgen.measure.run import RUN_FILE
from loadgen.replay import limits
from loadgen.replay import options as run_options
from loadgen.replay.fleet.rundir import new_run_dir
from loadgen.replay.handover import HANDOVER_ENV, Handover, write_handover
from loadgen.replay.options import Options
from loadgen.replay.prepare import Prepared
from loadgen.replay.resume import resume
from loadgen.report.slo import read_slo
from loadgen.version import describe


@dataclass(frozen=True)
class Fleet:
    """How many lanes and processes; None is Locust's or the schedule's own default."""

    users: int | None = None
    processes: int | None = None
    run_time: str | None = None


def handover(prepared: Prepared, options: Options, arguments: Sequence[str]) -> Handover:
    """What passes to Locust's process."""
    job = prepared.job
    block = job.block_size or 1
    floor, nonce = int(prepared.template["nonce_position"]), int(prepared.template["nonce_tokens"] or 0)
    return Handover(
        job=job,
        facts={
            "versions": {"loadgen": describe()},
            "workload": prepared.workload,
            "template": prepared.template,
            "notes": prepared.notes,
            "server": prepared.fingerprint,
            "simulated": prepared.facts.simulated,
            "max_model_len": prepared.facts.max_model_len,
            "nonce": options.nonce_scope,
            "slo_ttft_s": _goodput_limit_s(options),
            # Before the nonce stands the template's own preamble, the same in every prompt, and of many nonces some begin
            # alike (one of ten by a digit, where a digit is a token): whole blocks of that may hit.
            "cold_limit_tokens": (floor + nonce // 2) // block * block,
        },
        out=options.out,
        run_dir=options.run_dir,
        arguments=list(arguments),
        slo=str(Path(options.slo).resolve()) if options.slo else None,
    )


def _goodput_limit_s(options: Options) -> float | None:
    """The TTFT within which a turn counts as good, where the rules name one."""
    rules = read_slo(Path(options.slo)).slo if options.slo else []
    return next((rule.ttft_s for rule in rules if rule.metric == "goodput" and rule.ttft_s is not None), None)


# Measured: benchmarks/chunk_rate.py, chunks a second that one core reads with everything on, at 80 % of the core.
CHUNKS_A_CORE = 50_000
_TYPICAL_CHUNKS_S = 70  # of one stream, at a TPOT of 14.5 ms


def sizing_hint(streams: int, processes: int | None) -> str | None:
    """A sentence when that many streams at a typical pace are more than the processes are good for."""
    needed = streams * _TYPICAL_CHUNKS_S
    have = CHUNKS_A_CORE * (processes or 1)
    if needed * 2 < have:
        return None
    wanted = -(-needed * 2 // CHUNKS_A_CORE)
    return (
        f"{streams} streams at {_TYPICAL_CHUNKS_S} chunks a second are {needed:,} chunks a second, and one core reads about "
        f"{CHUNKS_A_CORE:,}; use --processes {wanted} to stay clear of the edge"
    )


def play(prepared: Prepared, options: Options, fleet: Fleet, arguments: Sequence[str]) -> tuple[Path, int]:
    """Run Locust to the end; returns the run folder and Locust's exit code, which is loadgen's (`loadgen.errors`)."""
    run_dir = Path(options.run_dir) if options.run_dir else new_run_dir(Path(options.out))
    if (run_dir / RUN_FILE).exists():
        raise InputError(
            f"{run_dir} holds a run already; runs are never overwritten (--resume goes on with one)"
        )
    passed = handover(prepared, options, arguments)
    passed.run_dir = str(run_dir)
    return run_dir, _start(passed, fleet, run_options.to_arguments(options))


def play_on(run_dir: Path, fleet: Fleet) -> int:
    """Go on with an interrupted run; returns the exit code."""
    job, info, done = resume(run_dir)
    passed = Handover(
        job=job,
        facts={},
        out=str(run_dir.parent),
        run_dir=str(run_dir),
        arguments=info.arguments,
        resumed=info,
        done=done,
    )
    return _start(passed, fleet, info.arguments)


def _start(passed: Handover, fleet: Fleet, arguments: Sequence[str]) -> int:
    limits.require_files(limits.streams_in(passed.job, fleet.users), fleet.processes, passed.job.texts)
    file = write_handover(passed)
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(paths.find("agent_loop.py")),
        "--headless",
        "--only-summary",
    ]
    command += ["--host", passed.job.urls[0], "--loglevel", "WARNING", *arguments]
    for flag, value in (("-u", fleet.users), ("--processes", fleet.processes), ("-t", fleet.run_time)):
        if value is not None:
            command += [flag, str(value)]
    if fleet.processes:
        command += ["--expect-workers", str(fleet.processes), "--expect-workers-max-wait", "60", *_ports()]
    environment = {**os.environ, HANDOVER_ENV: str(file), "LOADGEN_QUIET": "1"}
    if lifeline.taken():
        # An experiment started this process and is gone. Only now: a process with threads builds contexts slower.
        lifeline.on_end(lambda: os.kill(os.getpid(), signal.SIGTERM))
    try:
        return _play(command, environment)
    finally:
        file.unlink(missing_ok=True)


def _ports() -> list[str]:
    """A free port for master and workers, named on both sides (Locust's children dial the default otherwise)."""
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    return ["--master-bind-port", port, "--master-port", port]


def _play(command: Sequence[str], environment: dict[str, str]) -> int:
    """Start Locust's master, a session of its own, wait for it, and return loadgen's exit code.

    Ctrl-C, SIGTERM and SIGHUP go to the master as SIGTERM: it then collects what its workers have, while a Ctrl-C to the
    whole group makes them quit on their own. A second signal ends everything at once. No worker outlives the master, and
    the master does not outlive this process: it does the same as for SIGTERM when that is killed.
    """
    signals = 0
    process: subprocess.Popen[bytes] | None = None

    def forward(*_: object) -> None:
        nonlocal signals
        signals += 1
        if process is None:
            return
        if signals == 1:
            process.send_signal(signal.SIGTERM)
        else:
            print(
                "loadgen: killed; what was measured is kept, `loadgen report` rebuilds from it",
                file=sys.stderr,
            )
            _kill_group(process.pid)

    ends = [signal.SIGINT, signal.SIGTERM]
    if signal.getsignal(signal.SIGHUP) != signal.SIG_IGN:  # nohup
        ends.append(signal.SIGHUP)
    previous = {number: signal.signal(number, forward) for number in ends}
    try:
        process = subprocess.Popen(
            command, env=lifeline.tied(environment), stdin=subprocess.PIPE, start_new_session=True
        )
        if signals:  # one that came before there was anybody to tell
            process.send_signal(signal.SIGTERM)
        code = process.wait()
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if process is not None:
            _kill_group(process.pid)
            assert process.stdin is not None
            process.stdin.close()
    if signals:
        return EXIT_INTERRUPTED
    if code < 0:
        raise LoadgenError(
            f"Locust's process died of {signal.Signals(-code).name}; the samples taken until then are kept"
        )
    return code


def _kill_group(leader: int) -> None:
    try:
        os.killpg(leader, signal.SIGKILL)
    except ProcessLookupError:
        pass
