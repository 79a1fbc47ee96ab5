"""`run.json`: everything needed to repeat a run, and what happened to it apart from its samples.

Written when the run starts (state `running`) and again at its end, always through a temporary file, so that a
killed run leaves a readable one. Holds no secret: arguments are redacted before they reach it.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import msgspec

from loadgen.errors import InputError

RUN_FILE = "run.json"
PROTOCOL = 1


class Clock(msgspec.Struct, kw_only=True):
    """One instant on both clocks of a worker's machine: wall = mono + (wall_ns - mono_ns)."""

    mono_ns: int
    wall_ns: int


class Endpoint(msgspec.Struct, kw_only=True):
    url: str
    model: str
    api: str = "chat"
    max_model_len: int | None = None
    server: dict[str, Any] = {}  # fingerprint: version, block size, KV capacity, connector, where visible
    time_scale: float = 1.0  # endpoint seconds = wall seconds x time_scale
    simulated: str | None = None  # profile of a simulated endpoint


class Plan(msgspec.Struct, kw_only=True):
    """What the run set out to send."""

    sessions: int
    turns: int
    prompt_tokens: int | None = None
    output_tokens: int | None = None
    turns_by_session: dict[str, int] = {}


class Incident(msgspec.Struct, kw_only=True):
    """Something that happened to the run and may make it invalid; `code` is one of `report.validity`'s."""

    code: str
    detail: str = ""


class RunInfo(msgspec.Struct, kw_only=True):
    protocol: int = PROTOCOL
    run: str
    arm: str
    rep: int = 0
    experiment: str | None = None
    created: str  # ISO 8601, UTC
    state: Literal["running", "finished", "cut", "interrupted"] = "running"
    versions: dict[str, str] = {}
    machine: dict[str, Any] = {}
    arguments: list[str] = []
    workload: dict[
        str, Any
    ] = {}  # name, trace path and sha256, fidelity, tokenizer and its fingerprint, contexts' content hash
    schedule: dict[str, Any] = {}  # kind and its parameters as applied
    policy: dict[str, Any] = {}  # answers, nonce scope and width, forced output, timeouts
    seed: int = 0
    endpoint: Endpoint
    plan: Plan
    template: dict[str, Any] = {}  # measured overhead of the chat template
    clocks: dict[str, Clock] = {}  # by worker
    start: Clock | None = None  # first intended start
    end: Clock | None = None  # end of the last turn
    steady_from: Clock | None = None  # closed: all lanes have a session …
    steady_to: Clock | None = None  # … until one finds none
    resumed: list[str] = []  # when the run was taken up again, ISO 8601
    incidents: list[Incident] = []
    merged_exactly: bool | None = (
        None  # whether the histograms that workers sent, merged, equal those of all samples
    )
    notes: list[str] = []  # what was applied: caps, scales, skipped things


def read_run(folder: Path) -> RunInfo:
    """Read `folder/run.json`. Raises InputError with what to do when it is absent or damaged."""
    path = folder / RUN_FILE
    try:
        return msgspec.json.decode(path.read_bytes(), type=RunInfo)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(f"{folder} is not a run folder: it has no {RUN_FILE}") from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path} cannot be read: {error}") from None


def write_run(folder: Path, info: RunInfo) -> None:
    """Write `folder/run.json` so that a reader sees the old or the new one, never half. Raises InputError when it cannot."""
    path = folder / RUN_FILE
    temporary = path.with_suffix(".json.tmp")
    try:
        with temporary.open("wb") as file:
            file.write(msgspec.json.format(msgspec.json.encode(info), indent=1))
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        temporary.unlink(missing_ok=True)
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
