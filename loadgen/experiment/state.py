"""`experiment.json`: the plan, and what has come of it. Written after every run, so that a break loses one run at most."""

from __future__ import annotations

import os
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec

from loadgen.errors import InputError
from loadgen.experiment.order import Step, order
from loadgen.experiment.prepare import Stamp
from loadgen.experiment.spec import Experiment

STATE_FILE = "experiment.json"
VERSION = 1


class Result(msgspec.Struct, kw_only=True):
    """One attempt at a step. `code` is the exit code of `loadgen run`; null: it never started or never ended."""

    index: int
    attempt: int
    folder: str
    started: str
    seconds: float = 0.0
    code: int | None = None
    error: str = ""
    spoilt: list[str] = []  # codes of validity, all of them this client's fault: such a run is repeated
    previous_arm: str | None = None
    preparation: list[Stamp] = []
    server: dict[str, Any] = {}


class State(msgspec.Struct, kw_only=True):
    version: int = VERSION
    id: str  # new for every experiment folder: nonces are made from it, so a second execution is cold too
    name: str
    sha256: str  # of the experiment file
    created: str
    plan: list[Step]
    results: list[Result] = []

    def done(self, step: Step) -> Result | None:
        """The attempt that counts, if one ended by itself: the last one that this client did not spoil, else the last one.

        0 and 3 (invalid) are results, every other code is a break.
        """
        ended = [r for r in self.results if r.index == step.index and r.code in (0, 3)]
        return next((r for r in reversed(ended) if not r.spoilt), ended[-1] if ended else None)

    def attempts(self, step: Step) -> int:
        return sum(1 for r in self.results if r.index == step.index)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def begin(experiment: Experiment, folder: Path) -> State:
    """A new state in a new folder. Raises InputError when the folder holds something already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        occupied = any(folder.iterdir())
    except OSError as error:
        raise InputError(f"{folder} cannot be the folder of an experiment ({error.strerror})") from None
    if occupied:
        raise InputError(
            f"{folder} is not empty; --resume {folder} goes on with an experiment, else choose another --out"
        )
    state = State(
        id=f"{experiment.spec.name}-{uuid.uuid4().hex[:8]}",
        name=experiment.spec.name,
        sha256=experiment.sha256,
        created=now(),
        plan=order(experiment),
    )
    save(state, folder)
    return state


def resume(experiment: Experiment | None, folder: Path) -> State:
    """The state of an experiment that was begun. Raises InputError where there is none, or its file has changed since."""
    path = folder / STATE_FILE
    try:
        state = msgspec.json.decode(path.read_bytes(), type=State)
    except OSError:
        raise InputError(f"{folder} holds no {STATE_FILE}, so there is nothing to resume") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    if state.version != VERSION:
        raise InputError(f"{path} is of version {state.version}, this loadgen reads {VERSION}")
    if experiment is not None and state.sha256 != experiment.sha256:
        raise InputError(
            f"the experiment file has changed since {folder} was begun; runs of two plans do not mix"
        )
    return state


def save(state: State, folder: Path) -> None:
    """Whole or not at all."""
    path = folder / STATE_FILE
    temporary = path.with_suffix(".json.tmp")
    with temporary.open("wb") as file:
        file.write(msgspec.json.format(msgspec.json.encode(state), indent=1))
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)
