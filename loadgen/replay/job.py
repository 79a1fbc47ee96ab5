"""The job: what a run will do, worked out before the load, so that no worker has to think while it plays.

`job.json` lies in the run folder. The master writes it, every worker reads it; it names the trace and holds for each
session its arrival, nonce and turns, for each turn what to expect. Times are endpoint seconds.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from loadgen.errors import InputError
from loadgen.measure.sample import TurnClass
from loadgen.replay import nonce

JOB_FILE = "job.json"


class PlannedTurn(msgspec.Struct, array_like=True, kw_only=True):
    """One turn. `target_tokens` and `expected_reuse` are None where no tokenizer of the endpoint can tell."""

    index: int
    attempt: int
    klass: TurnClass
    target_tokens: int | None
    expected_reuse: int | None
    output_tokens: int | None  # None: the server decides
    gap_s: float  # scaled and capped
    gap_kind: str  # "tool", "human" or ""
    aborted: bool = False  # the recorded turn was cut by its user


class PlannedSession(msgspec.Struct, kw_only=True):
    id: str
    arrival_s: float = 0.0  # open and timed: from the start of the run
    nonce_key: str = ""  # sessions of one key share a nonce; empty: none
    turns: list[PlannedTurn]
    agent: str = "main"
    children: list[tuple[str, int, bool]] = []  # (session, after which turn of this one, whether this one waits)
    child: bool = False  # starts when its parent's turn ends, not by itself


class Job(msgspec.Struct, kw_only=True):
    url: str
    model: str
    api: str
    api_key_env: str
    time_scale: float
    trace: str  # path
    trace_sha256: str
    schedule: dict[str, Any]
    answers: str
    natural_output: bool
    seed: int
    timeouts_s: tuple[float, float, float]  # first token, stall, turn; endpoint seconds
    isolate: bool  # turns are alone in flight, and the server's counters tell their tiers
    block_size: int | None
    nonce_form: Literal["plain", "dashed"]
    sessions: list[PlannedSession]
    experiment: str | None = None
    run: str = ""  # set when the run starts, as are the three below
    arm: str = ""
    rep: int = 0
    run_dir: str = ""

    def nonce(self, session: PlannedSession) -> str:
        """The line in front of a session's first content, or empty. A run outside an experiment never repeats one."""
        if not session.nonce_key:
            return ""
        scope = (self.experiment, self.arm, self.rep) if self.experiment else (self.run,)
        return nonce.line(self.nonce_form, nonce.digits(*scope, session.nonce_key))

    @property
    def turns(self) -> int:
        return sum(len(session.turns) for session in self.sessions)

    @property
    def prompt_tokens(self) -> int | None:
        targets = [turn.target_tokens for session in self.sessions for turn in session.turns]
        return None if None in targets else sum(t for t in targets if t is not None)

    @property
    def output_tokens(self) -> int | None:
        wanted = [turn.output_tokens for session in self.sessions for turn in session.turns]
        return None if None in wanted else sum(w for w in wanted if w is not None)


def write_job(folder: Path, job: Job) -> Path:
    path = folder / JOB_FILE
    temporary = path.with_suffix(".json.tmp")
    temporary.write_bytes(msgspec.json.encode(job))
    os.replace(temporary, path)
    return path


def read_job(path: Path) -> Job:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Job)
    except FileNotFoundError:
        raise InputError(
            f"this worker cannot see {path}; workers on other machines need the run folder and the trace under the same path"
        ) from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path} cannot be read: {error}") from None
