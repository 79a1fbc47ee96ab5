"""An experiment file: its schema, its defaults, and everything that can be wrong with it before a server starts."""

from __future__ import annotations

import hashlib
import itertools
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from loadgen.errors import InputError
from loadgen.replay.options import Options, resolve, to_arguments
from loadgen.replay.wire.target import Target

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_OURS = {"arm", "rep", "experiment", "out", "run_dir", "yes"}  # options that the experiment itself sets
_PASSED = ("users", "processes", "run_time")  # of `loadgen run`, beside its options
Value = bool | int | float | str


class Arm(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One configuration of the server: an endpoint that is up, or commands that bring it up and down.

    `{port}` in `host`, `start` and `stop` is a free port of this machine, `{loadgen}` this very command. `start`
    runs in a shell; it may stay in the foreground or come back when the server runs. Without `stop`, all that
    `start` left in its process group is ended.
    """

    name: str
    host: str
    start: str | None = None
    stop: str | None = None
    ready: str = "/v1/models"
    start_timeout_s: float = 900.0
    store: str | None = None  # a KV store beside the server whose /metrics tell when stores have ended
    env: dict[str, str] = {}
    workload: dict[str, Value] = {}


class Prepare(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What happens before each run; what cannot be done is stamped, and the run goes on."""

    # Of arms with `start`. run: a fresh server for each run, alone. arm: only when the arm changes. never: all stay up.
    restart: Literal["run", "arm", "never"] = "run"
    reset: bool = True  # ask /reset_prefix_cache; a fresh nonce makes the run cold whatever it answers
    drain_timeout_s: float = 120.0  # wait until nothing is in flight and stores have ended
    settle_s: float = 0.0  # then wait so long: for a connector that does not tell when its stores end
    max_dirty_mb: float | None = (
        None  # wait until this machine has no more dirty pages (server on this machine)
    )
    warmup_turns: int = 2  # turns of one session under another nonce, thrown away


class Controls(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Runs and tests whose outcome is known."""

    negative: dict[str, Value] | None = (
        None  # workload that fits every pool: the tier must not help by more than 5 %
    )
    positive: float | None = 0.15  # this delay, added to the baseline's own runs, must be found


class Within(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A limit on TTFT, for the number of sessions that each arm holds within it; needs a sweep over concurrency."""

    ttft_s: float
    share: float = 0.9  # of the turns
    turns: Literal["all", "first", "reuse"] = "reuse"
    gpus: int = 1  # of the server, for sessions a GPU

    def load_option(self, sweep: Mapping[str, Any]) -> str:
        """The option of the sweep that is the load, empty where there is none."""
        return next((option for option in ("users", "width") if option in sweep), "")


class Spec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    name: str
    arms: list[Arm]
    description: str = ""
    runs: int = 6  # of each arm in each cell; even, so that each goes first equally often
    seed: int = 0
    tolerance: float = 0.05
    expected_sd: float = 0.03  # run-to-run, for the power that is printed before the start
    differ: tuple[str, ...] = (
        "connector",
    )  # fields of the fingerprint in which the arms are meant to differ
    workload: dict[str, Value] = {}
    sweep: dict[str, list[Value]] = {}  # option: its values; every combination is a cell
    primary: dict[str, Value] = {}  # cell on which the verdict rests; default: the last one
    within: Within | None = None
    prepare: Prepare = msgspec.field(default_factory=Prepare)
    controls: Controls = msgspec.field(default_factory=Controls)


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One point of the sweep. `name` is also its folder; empty for an experiment without a sweep."""

    name: str
    values: dict[str, Value]
    kind: Literal["measure", "negative"] = "measure"


class Experiment(msgspec.Struct, frozen=True, kw_only=True):
    """A checked file."""

    spec: Spec
    sha256: str
    cells: list[Cell]
    primary: str  # name of a cell

    def arm(self, name: str) -> Arm:
        return next(arm for arm in self.spec.arms if arm.name == name)

    def cell(self, name: str) -> Cell:
        return next(cell for cell in self.cells if cell.name == name)

    def workload(self, arm: str, cell: str) -> dict[str, Value]:
        """Options of `loadgen run` for one arm in one cell: common ones, then the arm's, then the cell's."""
        return {**self.spec.workload, **self.arm(arm).workload, **self.cell(cell).values}


def load(path: Path, hosts: Mapping[str, str] | None = None) -> Experiment:
    """Read and check an experiment file. Raises InputError with one sentence for anything that cannot work.

    `hosts` gives arms, by name, endpoints that are up, instead of the file's host and commands.
    """
    try:
        content = path.read_bytes()
        data = tomllib.loads(content.decode())
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path} is not valid TOML: {error}") from None
    try:
        spec = msgspec.convert(data, Spec)
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {error}") from None
    for name, host in (hosts or {}).items():
        arm = next((arm for arm in spec.arms if arm.name == name), None)
        if arm is None or not host:
            names = ", ".join(arm.name for arm in spec.arms)
            raise InputError(f"--host wants ARM=URL with one of the arms {names}, not {name!r}")
        arm.host, arm.start, arm.stop = host, None, None
    for problem in _problems(spec):
        raise InputError(f"{path}: {problem}")
    for arm in spec.arms:
        try:
            Target.parse(arm.host.replace("{port}", "1"))
        except InputError as error:
            raise InputError(f"{path}: arm {arm.name}: {error}") from None
    cells = [
        Cell(name=_cell_name(values), values=values)
        for values in (
            dict(zip(spec.sweep, point, strict=True)) for point in itertools.product(*spec.sweep.values())
        )
    ]
    chosen = [cell for cell in cells if all(cell.values.get(k) == v for k, v in spec.primary.items())]
    if not chosen:
        raise InputError(f"{path}: primary names no cell of the sweep")
    if spec.controls.negative is not None:
        cells.append(Cell(name="control", values=spec.controls.negative, kind="negative"))
    found = Experiment(
        spec=spec,
        sha256=hashlib.sha256(content + repr(sorted((hosts or {}).items())).encode()).hexdigest(),
        cells=cells,
        primary=chosen[-1].name,
    )
    for cell in cells:
        for arm in spec.arms:
            try:
                run_options(found.workload(arm.name, cell.name))
            except InputError as error:
                where = f"arm {arm.name}" + (f", cell {cell.name}" if cell.name else "")
                raise InputError(f"{path}: {where}: {error}") from None
    return found


def run_options(workload: dict[str, Value]) -> tuple[Options, list[str]]:
    """The checked options of a workload and the words of `loadgen run` that say the same. Raises InputError."""
    passed = {k: v for k, v in workload.items() if k in _PASSED}
    options = resolve({}, {k: v for k, v in workload.items() if k not in _PASSED})
    words = to_arguments(options)
    for key, value in passed.items():
        words += ["--" + key.replace("_", "-"), str(value)]
    return options, words


def _problems(spec: Spec) -> list[str]:
    found = []
    names = [arm.name for arm in spec.arms]
    for name in [spec.name, *names]:
        if not NAME.fullmatch(name):
            found.append(f"{name!r} cannot be a name: letters, digits, dots, dashes and underscores make one")
    if len(names) < 2:
        found.append("an experiment needs two arms or more")
    if len(set(names)) < len(names):
        found.append("two arms have one name")
    if spec.runs < 2 or spec.runs % 2:
        found.append(
            f"runs is {spec.runs}; it must be even and at least 2, so that each arm goes first equally often"
        )
    if not 0 <= spec.tolerance < 1:
        found.append(f"tolerance is {spec.tolerance}; it must be from 0 to below 1")
    if not 0 < spec.expected_sd < 1:
        found.append(f"expected_sd is {spec.expected_sd}; it must be between 0 and 1")
    for arm in spec.arms:
        if arm.stop is not None and arm.start is None:
            found.append(f"arm {arm.name} has stop without start")
        if "{port}" in arm.host and arm.start is None:
            found.append(f"arm {arm.name}: {{port}} in host needs a start command that listens there")
    workloads = [spec.workload, *(arm.workload for arm in spec.arms), spec.controls.negative or {}]
    for key in {*itertools.chain(*workloads), *spec.sweep}:
        if key in _OURS or key == "host":
            found.append(f"{key} is set by the experiment itself")
        elif key not in Options.__dataclass_fields__ and key not in _PASSED:
            found.append(f"{key!r} is no option of `loadgen run`")
    for key, values in spec.sweep.items():
        if not values or len(set(map(str, values))) < len(values):
            found.append(f"sweep.{key} needs values, each once")
    prepare = spec.prepare
    if min(prepare.drain_timeout_s, prepare.settle_s, prepare.warmup_turns, prepare.max_dirty_mb or 0) < 0:
        found.append("the numbers of [prepare] cannot be negative")
    if (within := spec.within) is not None:
        loads = spec.sweep.get(within.load_option(spec.sweep), [])
        if not loads or not all(type(load) is int and load >= 1 for load in loads):
            found.append(
                "[within] needs a sweep over users (closed schedule) or width (sweep), in whole numbers"
            )
        if not (within.ttft_s > 0 and 0 < within.share <= 1 and within.gpus >= 1):
            found.append("[within] needs ttft_s above 0, share above 0 and at most 1, and gpus of at least 1")
    positive = spec.controls.positive
    if positive is not None and not 0 < positive <= 1:
        found.append(f"controls.positive is {positive}; give the added delay as a share, such as 0.15")
    return found


def _cell_name(values: dict[str, Any]) -> str:
    text = ",".join(f"{key}={value}" for key, value in values.items())
    return re.sub(r"[^A-Za-z0-9.,=_-]+", "-", text)
