"""Take up an interrupted run where it ended.

Turns that were measured are not sent again; those that were cut by the interruption are sent once more, as one more
attempt. Sessions keep their nonces, so their prompts continue what the server has seen; whether its caches survived the
pause shows in the cached tokens of the first turns after it.
"""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from loadgen.errors import InputError
from loadgen.measure.journal import SampleReader
from loadgen.measure.run import RunInfo, read_run
from loadgen.measure.sample import ErrorClass, TurnClass
from loadgen.replay.fleet.rundir import lock
from loadgen.replay.job import JOB_FILE, Job, PlannedSession, read_job

# Incidents that are over once the run goes on.
_OVER = {"lost_worker", "missing_final"}


def resume(run_dir: Path) -> tuple[Job, RunInfo, dict[str, int]]:
    """The job to go on with, its `run.json`, and how many turns of each session are over.

    Raises InputError when the run is finished, or nothing can be resumed.
    """
    info = read_run(run_dir)
    lock(run_dir).close()  # only asks: the process that goes on with the run takes it
    if info.state == "finished" and not any(i.code in _OVER for i in info.incidents):
        raise InputError(f"{run_dir} is finished; there is nothing to resume")
    job = read_job(run_dir / JOB_FILE)
    if job.answers != "recorded" or job.rendered is not None:
        raise InputError(
            f"{run_dir} was played with --answers {job.answers}: what its sessions said is not kept, so they cannot go on"
        )
    over: set[tuple[str, int, int]] = set()
    sent: set[tuple[str, int, int]] = set()
    for sample in SampleReader(run_dir):
        key = (sample.session, sample.turn, sample.attempt)
        sent.add(key)
        if sample.error is not ErrorClass.CANCELLED:
            over.add(key)
    done: dict[str, int] = {}
    for session in job.sessions:
        if session.warmup:
            done[session.id] = len(session.turns)
            continue
        count = 0
        while count < len(session.turns):
            turn = session.turns[count]
            if (session.id, turn.index, turn.attempt) not in over:
                break
            count += 1
        done[session.id] = count
        if count < len(session.turns):
            _send_again(session, count, sent)
    left = sum(len(s.turns) - done[s.id] for s in job.sessions)
    info.notes.append(
        f"The run was {info.state} and taken up again for its last {left} turns; the server's caches may have changed in between."
    )
    info.state = "running"
    info.end = info.merged_exactly = None
    info.incidents = [incident for incident in info.incidents if incident.code not in _OVER]
    info.schedule.pop("stopped_by", None)
    info.resumed.append(datetime.now(UTC).isoformat(timespec="milliseconds"))
    return job, info, done


def _send_again(session: PlannedSession, position: int, sent: set[tuple[str, int, int]]) -> None:
    """Number the turn that was cut as one more attempt, and the attempts of the trace behind it after that."""
    turn = session.turns[position]
    known = [attempt for name, index, attempt in sent if (name, index) == (session.id, turn.index)]
    if turn.attempt not in known:
        return
    shift = max(known) + 1 - turn.attempt
    turn.klass = TurnClass.RETRY
    for later in session.turns[position:]:
        if later.index == turn.index:
            later.attempt += shift
