"""Reading what `host_sampler` wrote, and putting it on the time axis of a run."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from loadgen.errors import InputError
from loadgen.measure.probes.host_sampler import VERSION
from loadgen.measure.probes.server import from_series

OFFSET_LIMIT_S = 0.5  # half a tick of the sampler: a larger error moves bytes into the wrong round


@dataclass(frozen=True)
class HostLog:
    """One machine's samples: its description, its ticks in order of time, and lines that could not be read."""

    path: Path
    header: dict[str, Any]
    ticks: list[dict[str, Any]]
    damaged: int


def read_host(path: Path) -> HostLog:
    """Read a sampler's file; a line cut by a kill is counted, not fatal.

    A sampler that was started again goes on in the same file, since the counters are the kernel's own; a
    reboot in between sets them to zero and raises InputError, as does a file of something else.
    """
    header: dict[str, Any] | None = None
    ticks: list[dict[str, Any]] = []
    damaged = 0
    try:
        lines = path.read_bytes().splitlines()
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror}); probe-host writes such a file") from None
    for place, line in enumerate(lines, 1):
        try:
            value = orjson.loads(line)
        except orjson.JSONDecodeError:
            damaged += 1
            continue
        if isinstance(value, dict) and value.get("type") == "host":
            if value.get("v") != VERSION:
                raise InputError(
                    f"{path}:{place}: samples of version {value.get('v')}, this loadgen reads {VERSION}"
                )
            if header is not None and header.get("boot_id") != value.get("boot_id"):
                raise InputError(f"{path}:{place}: the machine was rebooted here; use one file a boot")
            header = header or value
        elif isinstance(value, dict) and isinstance(value.get("wall_ns"), int) and header is not None:
            ticks.append(value)
        else:
            damaged += 1
    if header is None:
        raise InputError(f'{path} is not a file of host samples: it has no line of type "host"')
    ticks.sort(key=lambda tick: tick["mono_ns"])
    return HostLog(path, header, ticks, damaged)


@dataclass(frozen=True)
class Offset:
    """How far the wall clocks of the host and of the client may be apart. `bound_s` null: not known."""

    bound_s: float | None
    why: str

    @property
    def proven(self) -> bool:
        return self.bound_s is not None and self.bound_s <= OFFSET_LIMIT_S


def clock_offset(host: dict[str, Any], client: dict[str, Any]) -> Offset:
    """Compare two descriptions (`host_sampler.describe()`) of the machine of the samples and of the client."""
    if host.get("boot_id") and host.get("boot_id") == client.get("boot_id"):
        return Offset(0.0, "both are one machine")
    errors = []
    for name, side in (("the host", host), ("the client", client)):
        clock = side.get("clock") or {}
        if not clock.get("synchronised"):
            return Offset(None, f"the clock of {name} is not synchronised (NTP or PTP), or does not say so")
        errors.append(clock["max_error_us"] / 1e6)
    return Offset(sum(errors), "the two kernels' own bounds on their clock errors, added up")


@dataclass(frozen=True)
class Window:
    """A stretch of a run in wall time. `claimed`: bytes that the KV connector says it loaded in it; null where it does not."""

    label: str
    start_ns: int
    end_ns: int
    claimed: int | None = None


@dataclass(frozen=True)
class _Mark:
    label: str
    wall_ns: int
    loaded: float | None


def windows(run_dir: Path) -> list[Window]:
    """The rounds of a run and the whole of it, from the labelled pages in `server.jsonl`.

    Pages are taken between rounds: a round's window ends with its page and starts with the page before.
    """
    path = run_dir / "server.jsonl"
    marks: list[_Mark] = []
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        raise InputError(f"{run_dir} has no server.jsonl to take the times of the rounds from") from None
    for line in lines:
        try:
            page = orjson.loads(line)
            label, wall = str(page["label"]), int(page["wall_ns"])
            loaded = (
                from_series(page.get("counters", {})).counters.get("load_bytes") if label != "tick" else None
            )
        except (orjson.JSONDecodeError, KeyError, TypeError, ValueError, AttributeError):
            continue  # the last line of a killed run
        if label != "tick" and (not marks or marks[-1].label != label):
            marks.append(_Mark(label, wall, loaded))
    if len(marks) < 2:
        raise InputError(f"{path} marks no start and end of the run")
    found = [_window("whole run", marks[0], marks[-1])]
    found += [
        _window(mark.label.replace("round:", "round "), before, mark)
        for before, mark in itertools.pairwise(marks)
        if mark.label.startswith("round:")
    ]
    return found


def _window(label: str, a: _Mark, b: _Mark) -> Window:
    claimed = None if a.loaded is None or b.loaded is None else int(b.loaded - a.loaded)
    return Window(label, a.wall_ns, b.wall_ns, claimed)


def within(log: HostLog, window: Window) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """The last tick before the window and the first one after it; null where the samples do not cover it."""
    before: Sequence[dict[str, Any]] = [t for t in log.ticks if t["wall_ns"] <= window.start_ns]
    after = [t for t in log.ticks if t["wall_ns"] >= window.end_ns]
    return (before[-1], after[0]) if before and after else None
