"""The job: what a run will do, worked out before the load, so that no worker has to think while it plays.

`job.json` lies in the run folder. The master writes it, every worker reads it; it names the trace and holds for each
session its arrival, nonce and turns, for each turn what to expect. Times are endpoint seconds. It holds no secret:
keys and header values are read from the environment of each worker.
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
    """One turn that is sent. `target_tokens` and `expected_reuse` are None where no tokenizer of the endpoint can tell."""

    index: int
    attempt: int
    klass: TurnClass
    target_tokens: int | None
    expected_reuse: int | None
    output_tokens: int | None  # None: the server decides
    gap_s: float  # scaled and capped
    gap_kind: str  # "tool", "human" or ""
    keep: int | None = None  # instead of the trace's: the history was compacted to fit the model
    abort_s: float | None = None  # the recorded turn was cut by its user this long after it was sent


class PlannedSession(msgspec.Struct, kw_only=True):
    id: str
    record: str  # the session's id in the trace; several copies share one
    arrival_s: float = 0.0  # from the start of the run
    nonce_key: str = ""  # sessions of one key share a nonce; empty: none
    nonce_in_tools: bool = False  # the nonce goes into the first tool's description, since tools come first
    lead: int = 0  # turns of the trace before the first planned one: in the prompt, not sent
    turns: list[PlannedTurn]
    agent: str = "main"
    children: list[
        tuple[str, int, bool]
    ] = []  # (session, after which turn of this one, whether this one waits)
    child: bool = False  # starts when its parent's turn ends, not by itself
    warmup: bool = False  # played first, its samples kept apart
    endpoint: int = 0  # position in the job's `urls`


class Job(msgspec.Struct, kw_only=True):
    urls: list[str]
    model: str
    api: str
    client: str = "loadgen"
    api_key_env: str
    auth_scheme: str = "Bearer"
    headers: list[str] = []  # 'Name: value', $VAR not yet read
    session_header: str | None = None
    proxy: str | None = None
    ca_file: str | None = None
    cache_salt: bool = False
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
    in_flight: int | None = None
    texts: int = 0  # in files beside the trace; who plays maps those of the sessions it gets
    stop_after: int | None = None
    nonce_form: Literal["plain", "dashed"]
    nonce_seed: str  # of a run outside an experiment: new each time it starts
    floor: int = 0  # tokens that any two prompts share: the template's preamble up to the nonce
    rendered: str | None = None  # folder of prompts as token ids, for the completions API
    sessions: list[PlannedSession]
    experiment: str | None = None
    epoch: int = 0  # rises with every resume
    arm: str = ""
    rep: int = 0
    run: str = ""  # set when the run starts, as is the next
    run_dir: str = ""

    @property
    def turns(self) -> int:
        """Turns to send, warm-up not counted."""
        return sum(len(session.turns) for session in self.sessions if not session.warmup)

    @property
    def prompt_tokens(self) -> int | None:
        targets = [turn.target_tokens for session in self.sessions for turn in session.turns]
        return None if None in targets else sum(t for t in targets if t is not None)

    @property
    def output_tokens(self) -> int | None:
        wanted = [turn.output_tokens for session in self.sessions for turn in session.turns]
        return None if None in wanted else sum(w for w in wanted if w is not None)

    def nonce(self, key: str) -> str:
        """The line in front of the first content of sessions with this key, or empty.

        Its input is (experiment, arm, repetition, key), and for a run outside an experiment something that never comes
        twice: a server that saw an earlier run must not find its prompts.
        """
        if not key:
            return ""
        scope = (self.experiment or self.nonce_seed, self.arm, self.rep, self.epoch)
        return nonce.line(self.nonce_form, nonce.digits(*scope, key))


def write_job(folder: Path, job: Job) -> Path:
    """Write `folder/job.json`, whole or not at all; returns its path. Raises InputError when the disk refuses."""
    path = folder / JOB_FILE
    temporary = path.with_suffix(".json.tmp")
    try:
        temporary.write_bytes(msgspec.json.encode(job))
        os.replace(temporary, path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
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
