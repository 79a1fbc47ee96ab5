"""What is done before a run so that it does not inherit the run before it; every step is stamped, done or not."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from loadgen.errors import LoadgenError
from loadgen.experiment.spec import Prepare
from loadgen.measure.probes.fingerprint import fingerprint
from loadgen.measure.probes.host_sampler import parse_meminfo
from loadgen.measure.probes.server import ServerCounters, parse
from loadgen.replay.endpoint import Api

_POLL_S = 0.5


class Stamp(msgspec.Struct, frozen=True, kw_only=True):
    """One step: `done` is false where it could not be done or proven, and `detail` says why."""

    step: str
    done: bool
    detail: str
    seconds: float


def prepare(api: Api, steps: Prepare, *, fresh: bool, warm_up: Callable[[], int] | None) -> list[Stamp]:
    """Run all steps on a server that is up. `fresh`: it was started just now. `warm_up` runs the turns that are thrown away."""
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
    if warm_up is not None and steps.warmup_turns:
        stamps.append(_timed("warm-up", lambda: _warmed(warm_up, steps.warmup_turns)))
    stamps.append(_timed("drain", lambda: drain(api, steps.drain_timeout_s)))
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


def reset(api: Api) -> tuple[bool, str]:
    """Ask vLLM to empty its prefix cache. The answer is read and never trusted: only a nonce makes a run cold."""
    status, _, body = api.json("POST", "/reset_prefix_cache")
    if status == 200 and isinstance(body, dict) and body.get("success") is True:
        return True, "the server says that it emptied its prefix cache"
    if status == 200:
        return False, f"answered 200 without success: {str(body)[:80]}"
    return False, f"HTTP {status}: there is no such route, or it is not enabled"


def drain(api: Api, timeout_s: float) -> tuple[bool, str]:
    """Wait until nothing is in flight and every store has ended, where the metrics tell."""
    start = time.monotonic()
    while True:
        page = scrape(api)
        if page is None:
            return False, "no readable /metrics: nobody knows what is still in flight"
        pending = _pending(page)
        if page.in_flight == 0 and not pending:
            told = (
                "all stores ended"
                if pending is not None
                else "the connector does not tell whether stores ended"
            )
            return pending is not None or not page.signs, f"nothing in flight; {told}"
        if page.in_flight is None:
            return False, "the metrics do not tell what is in flight"
        if time.monotonic() - start > timeout_s:
            return (
                False,
                f"{page.in_flight} requests in flight, {pending or 0} stores pending after {timeout_s:g} s",
            )
        time.sleep(_POLL_S)


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


def scrape(api: Api) -> ServerCounters | None:
    """The server's counters now; null where there is no page, or none that can be read."""
    try:
        status, _, page = api.request("GET", "/metrics")
        return parse(page.decode("utf-8", "replace")) if status == 200 else None
    except (LoadgenError, ValueError):
        return None


def identify(api: Api, model: str | None) -> dict[str, Any]:
    """Fingerprint of the server at this moment; what it does not tell is absent."""
    page = scrape(api) or parse("")
    return fingerprint(page, _body(api, "/v1/models"), _body(api, "/version"), model)


def _body(api: Api, path: str) -> Any:
    try:
        status, _, body = api.json("GET", path)
    except LoadgenError:
        return None
    return body if status == 200 else None


def _pending(page: ServerCounters) -> int | None:
    submitted, completed = page.counters.get("stores_submitted"), page.counters.get("stores_completed")
    return None if submitted is None or completed is None else int(submitted - completed)


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
