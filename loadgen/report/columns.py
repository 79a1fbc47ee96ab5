"""A run's samples as columns: 180 bytes a turn, so that a million turns fit where a million objects do not.

Shapes: every array is [N], N turns in the order of the files. ABSENT stands for null. Stamps are nanoseconds of the
worker's monotonic clock, moved by `wall_offset_ns` onto one axis (wall time) when run.json knows the worker's clock.
"""

from __future__ import annotations

from array import array
from collections import Counter
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
import numpy.typing as npt

from loadgen.measure.journal import read_samples
from loadgen.measure.run import RunInfo
from loadgen.measure.sample import ErrorClass, Tiers, TurnClass
from loadgen.report.server_log import read_tiers

ABSENT = -1
CLASSES = tuple(kind.value for kind in TurnClass)
ERRORS = tuple(kind.value for kind in ErrorClass)
_DISTINCT_MESSAGES = 200

Ints = npt.NDArray[np.signedinteger[Any]]
Bools = npt.NDArray[np.bool_]


Stamp = Annotated[int, msgspec.Meta(ge=-(2**61), le=2**61)]  # ns; what the columns can hold
Tokens = Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)]


class _Tiers(msgspec.Struct):
    compute: Tokens = 0
    hbm: Tokens = 0
    external: Tokens = 0
    unknown: Tokens = 0


class _Row(msgspec.Struct, kw_only=True):
    """The fields of a sample that a report needs."""

    session: str
    turn: Tokens
    attempt: int = 1
    klass: TurnClass = msgspec.field(name="class")
    worker: str
    intended_ns: Stamp
    send_ns: Stamp
    sent_ns: Stamp | None = None
    first_token_ns: Stamp | None = None
    last_token_ns: Stamp | None = None
    end_ns: Stamp
    clock: str
    coalesced: bool = False
    lag_ns: Stamp | None = None
    client_delay_ns: Stamp = 0
    cap_wait_ns: Stamp = 0
    prompt_tokens: Tokens | None = None
    target_tokens: Tokens | None = None
    expected_reuse: Tokens | None = None
    cached_tokens: Tokens | None = None
    output_tokens: Tokens | None = None
    requested_tokens: Tokens | None = None
    first_event_tokens: Tokens | None = None
    max_gap_ns: Stamp | None = None
    burst: bool = False
    finish: str | None = None
    error: ErrorClass | None = None
    message: str | None = None
    tiers: _Tiers | None = None


class _NamedRow(_Row, kw_only=True):
    """With the request's id, read only where a server's log has sourced turns by it."""

    request_id: str


_STAMPS = ("intended_ns", "send_ns", "sent_ns", "first_token_ns", "last_token_ns", "end_ns")
_DURATIONS = ("lag_ns", "client_delay_ns", "cap_wait_ns", "max_gap_ns")
_TOKENS = (
    "prompt_tokens",
    "target_tokens",
    "expected_reuse",
    "cached_tokens",
    "output_tokens",
    "requested_tokens",
    "first_event_tokens",
)


class Turns:
    """The columns of one run. `session` and `worker` index `sessions` and `workers`; `error` indexes ERRORS or is ABSENT."""

    intended_ns: Ints
    send_ns: Ints
    sent_ns: Ints
    first_token_ns: Ints
    last_token_ns: Ints
    end_ns: Ints
    lag_ns: Ints
    client_delay_ns: Ints
    cap_wait_ns: Ints
    max_gap_ns: Ints
    prompt_tokens: Ints
    target_tokens: Ints
    expected_reuse: Ints
    cached_tokens: Ints
    output_tokens: Ints
    requested_tokens: Ints
    first_event_tokens: Ints
    session: Ints
    worker: Ints
    turn: Ints
    attempt: Ints
    klass: Ints  # index into CLASSES
    error: Ints
    coalesced: Bools
    burst: Bools
    kernel_clock: Bools
    aborted: Bools  # cut as the recorded turn was: no usage can be had
    tiers: (
        Ints  # [N, 4]: compute, hbm, external, unknown; ABSENT in the first column where a turn has no source
    )
    sessions: list[str]
    workers: list[str]
    messages: Counter[tuple[str, str]]  # (error class, message): turns
    truncated: int

    def __len__(self) -> int:
        return int(self.turn.size)

    @property
    def ok(self) -> Bools:
        return np.asarray(self.error == ABSENT)

    def of_class(self, name: str) -> Bools:
        return np.asarray(self.klass == CLASSES.index(name))


def load(run_dir: Path, info: RunInfo) -> Turns:
    """Read all samples of a run. Raises InputError when there is none or a line is damaged."""
    reader = read_samples(run_dir)
    logged = read_tiers(run_dir)
    stamps = {name: array("q") for name in (*_STAMPS, *_DURATIONS)}
    tokens = {name: array("i") for name in _TOKENS}
    small = {name: array("i") for name in ("session", "worker", "turn")}
    tiny = {
        name: array("b")
        for name in ("klass", "error", "coalesced", "burst", "kernel_clock", "aborted", "attempt")
    }
    tiers = array("i")
    sessions: dict[str, int] = {}
    workers: dict[str, int] = {}
    offsets: list[int] = []
    messages: Counter[tuple[str, str]] = Counter()
    class_code = {kind: number for number, kind in enumerate(TurnClass)}
    error_code = {kind: number for number, kind in enumerate(ErrorClass)}
    stamp_columns = [(name, stamps[name].append) for name in _STAMPS]
    other_columns = [
        (name, column[name].append) for column in (stamps, tokens) for name in column if name not in _STAMPS
    ]

    for row in reader.decoded(_NamedRow if logged else _Row):
        worker = workers.setdefault(row.worker, len(workers))
        if worker == len(offsets):
            clock = info.clocks.get(row.worker)
            offsets.append(clock.wall_ns - clock.mono_ns if clock else 0)
        offset = offsets[worker]
        for name, append in stamp_columns:
            value = getattr(row, name)
            append(ABSENT if value is None else value + offset)
        for name, append in other_columns:
            value = getattr(row, name)
            append(ABSENT if value is None else value)
        small["session"].append(sessions.setdefault(row.session, len(sessions)))
        small["worker"].append(worker)
        small["turn"].append(row.turn)
        tiny["attempt"].append(min(row.attempt, 127))
        tiny["klass"].append(class_code[row.klass])
        tiny["error"].append(ABSENT if row.error is None else error_code[row.error])
        tiny["coalesced"].append(row.coalesced)
        tiny["burst"].append(row.burst)
        tiny["aborted"].append(row.finish == "aborted")
        tiny["kernel_clock"].append(row.clock == "kernel")
        source: _Tiers | Tiers | None = row.tiers
        if source is None and isinstance(row, _NamedRow):
            source = logged.get(row.request_id)
        if source is None:
            tiers.extend((ABSENT, 0, 0, 0))
        else:
            tiers.extend((source.compute, source.hbm, source.external, source.unknown))
        if row.error is not None:
            cause = (row.error.value, (row.message or "")[:200])
            messages[
                cause if cause in messages or len(messages) < _DISTINCT_MESSAGES else (row.error.value, "…")
            ] += 1

    turns = Turns()
    for kind, column in ((np.int64, stamps), (np.int32, tokens), (np.int32, small), (np.int8, tiny)):
        for name, values in column.items():
            setattr(turns, name, np.frombuffer(values, dtype=kind))
    for name in ("coalesced", "burst", "kernel_clock", "aborted"):
        setattr(turns, name, getattr(turns, name).astype(np.bool_))
    turns.tiers = np.frombuffer(tiers, dtype=np.int32).reshape(-1, 4)
    turns.sessions, turns.workers = list(sessions), list(workers)
    turns.messages, turns.truncated = messages, reader.truncated
    return turns
