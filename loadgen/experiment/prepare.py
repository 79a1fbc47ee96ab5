"""What is done before a run so that it does not inherit the run before it; every step is stamped, done or not."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from loadgen.doctor.server_state import drain, reset
from loadgen.errors import LoadgenError
from loadgen.experiment.spec import Prepare
from loadgen.measure.probes.host_sampler import parse_meminfo
from loadgen.replay.endpoint import Api

_POLL_S = 0.5


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """One step: `done` is false where it could not be done or proven, and `detail` says why."""

    step: str
    done: bool
    detail: str
    seconds: float


def prepare(
    api: Api, steps: Prepare, *, fresh: bool, warm_up: Callable[[], int], store: Api | None = None
) -> list[Stamp]:
    """Run all steps on a server that is up.

    `fresh`: it was started just now. `warm_up` runs the turns that are thrown away. `store` is a KV store beside it.
    """
    stamps = [
        Stamp(
            step="restart",
            done=fresh,
            detail="a new process" if fresh else "the same server goes on; the run's nonces are new",
            seconds=0.0,
        )
    ]
    if steps.reset and not fresh:
        stamps.append(_timed("reset", lambda: reset(api)))
    if steps.warmup_turns:
        stamps.append(_timed("warm-up", lambda: _warmed(warm_up, steps.warmup_turns)))
    stamps.append(_timed("drain", lambda: drain(api, steps.drain_timeout_s, store)))
    if steps.settle_s:
        time.sleep(steps.settle_s)
        stamps.append(Stamp(step="settle", done=True, detail=f"{steps.settle_s:g} s", seconds=steps.settle_s))
    if steps.max_dirty_mb is not None:
        limit = steps.max_dirty_mb
        if api.local:
            stamps.append(_timed("dirty pages", lambda: clean_pages(limit, steps.drain_timeout_s)))
        else:
            detail = "the server is on another machine; use probe-host there"
            stamps.append(Stamp(step="dirty pages", done=False, detail=detail, seconds=0.0))
    return stamps


def clean_pages(limit_mb: float, timeout_s: float, meminfo: Path = Path("/proc/meminfo")) -> tuple[bool, str]:
    """Wait until this machine has at most `limit_mb` MB of dirty pages and pages under write-back."""
    start = time.monotonic()
    while True:
        try:
            memory = parse_meminfo(meminfo.read_text())
        except OSError:
            return False, "this machine does not tell its dirty pages"
        dirty = (memory.get("Dirty", 0) + memory.get("Writeback", 0)) / 1e6
        if dirty <= limit_mb:
            return True, f"{dirty:.0f} MB dirty"
        if time.monotonic() - start > timeout_s:
            return False, f"{dirty:.0f} MB still dirty after {timeout_s:g} s"
        time.sleep(_POLL_S)


def _warmed(warm_up: Callable[[], int], turns: int) -> tuple[bool, str]:
    code = warm_up()
    return code == 0, f"{turns} turns, thrown away" if code == 0 else f"ended with code {code}"


def _timed(step: str, action: Callable[[], tuple[bool, str]]) -> Stamp:
    start = time.monotonic()
    try:
        done, detail = action()
    except (LoadgenError, subprocess.SubprocessError) as error:
        done, detail = False, str(error)
    return Stamp(step=step, done=done, detail=detail, seconds=time.monotonic() - start)
