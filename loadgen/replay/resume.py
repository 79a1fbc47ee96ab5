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
from loadgen.replay.job import JOB_FILE, Job, read_job

# Incidents that are over once the run goes on.
_OVER = {"lost_worker", "missing_final"}


def resume(run_dir: Path) -> tuple[Job, RunInfo, dict[str, int]]:
    """The job to go on with, its `run.json`, and how many turns of each session are over.

    Raises InputError when the run is finished, or nothing can be resumed.
    """
    info = read_run(run_dir)
    if info.state == "finished" and not any(i.code in _OVER for i in info.incidents):
        raise InputError(f"{run_dir} is finished; there is nothing to resume")
    job = read_job(run_dir / JOB_FILE)
    if job.answers != "recorded" or job.rendered is not None:
        raise InputError(
            f"{run_dir} was played with --answers {job.answers}: what its sessions said is not kept, so they cannot go on"
        )
    over: dict[str, set[int]] = {}
    tries: dict[tuple[str, int], int] = {}
    for sample in SampleReader(run_dir):
        tries[sample.session, sample.turn] = max(tries.get((sample.session, sample.turn), 0), sample.attempt)
        if sample.error is not ErrorClass.CANCELLED:
            over.setdefault(sample.session, set()).add(sample.turn)
    done: dict[str, int] = {}
    for session in job.sessions:
        if session.warmup:
            done[session.id] = len(session.turns)
            continue
        known = over.get(session.id, set())
        count = 0
        while count < len(session.turns) and session.turns[count].index in known:
            count += 1
        done[session.id] = count
        if count < len(session.turns) and (session.id, session.turns[count].index) in tries:
            turn = session.turns[count]
            turn.attempt = tries[session.id, turn.index] + 1
            turn.klass = TurnClass.RETRY
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
