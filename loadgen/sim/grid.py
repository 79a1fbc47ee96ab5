"""Many what-ifs side by side: configurations of one machine, numbers of sessions, and where each stops keeping its promise."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence

import msgspec
import numpy as np

from loadgen.errors import InputError
from loadgen.sim.profile import Profile, Tier, check
from loadgen.sim.whatif import CLASSES, Outcome, Schedule, WhatIf
from loadgen.sim.workload import Answers, Workload


class Promise(msgspec.Struct, frozen=True):
    """A session is within the SLO when at most 1 - `quantile` of its turns but the first wait over `ttft_s`."""

    ttft_s: float
    quantile: float = 0.95


class Result(msgspec.Struct, kw_only=True):
    """One configuration with one number of sessions. Times in seconds of the machine; all of it simulated."""

    configuration: str
    sessions: int
    turns: int
    rejected: int
    preemptions: int
    total_s: float
    ttft_s: dict[str, dict[str, float | None]]  # by class: mean, p50, p90, p95, p99, max
    hit_share: dict[str, float]  # hbm, external, compute: shares of all prompt tokens
    turns_s: float
    prompt_tokens_s: float
    output_tokens_s: float
    read_gb_s: float
    read_peak_gb_s: float
    written_gb: float
    stored_gb: float
    sessions_within: float | None  # share of the sessions within the promise


class Grid(msgspec.Struct, kw_only=True):
    profile: str
    trace: str
    schedule: str
    answers: str
    promise: Promise | None
    results: list[Result]
    knee: dict[
        str, int | None
    ]  # by configuration: most sessions with the promise kept; none: not even the fewest
    simulated: bool = True


def configurations(
    profile: Profile, arms: Sequence[str], pools_gb: Sequence[float | None], tiers: Sequence[Tier | None]
) -> Iterator[tuple[str, Profile, str]]:
    """(name, profile, arm) of every combination; empty lists leave what the profile says."""
    for arm_name in arms:
        for pool_gb in list(pools_gb) or [None]:
            for changed, tier in [(True, tier) for tier in tiers] or [(False, None)]:
                arm = profile.arm(arm_name)
                name = arm_name
                if pool_gb is not None:
                    arm = msgspec.structs.replace(
                        arm, pool_tokens=int(pool_gb * 1e9 / profile.kv_bytes_per_token)
                    )
                    name += f", HBM {pool_gb:g} GB"
                if changed:
                    arm = msgspec.structs.replace(arm, tiers=[] if tier is None else [tier])
                    name += ", no tier" if tier is None else f", {tier.name}"
                made = msgspec.structs.replace(profile, arms={arm_name: arm})
                check(made)
                yield name, made, arm_name


def run(
    workload: Workload,
    configured: Iterable[tuple[str, Profile, str]],
    sessions: Sequence[int],
    *,
    schedule: Schedule = "closed",
    answers: Answers = "live",
    promise: Promise | None = None,
    find_knee: bool = False,
    progress: Callable[[str], None] | None = None,
) -> tuple[list[Result], dict[str, int | None]]:
    """Every configuration with every number of sessions, and with `find_knee` the exact knee between two of them."""
    if find_knee and promise is None:
        raise InputError("the knee is where a promise breaks; give --slo-ttft-s")
    results: list[Result] = []
    knees: dict[str, int | None] = {}
    for name, profile, arm in configured:

        def play(count: int, name: str = name, profile: Profile = profile, arm: str = arm) -> Result:
            if progress is not None:
                progress(f"{name}: {count} sessions")
            machine = WhatIf(profile, arm, workload, sessions=count, schedule=schedule, answers=answers)
            return summarize(machine.run(), name, count, profile.kv_bytes_per_token, promise)

        rows = [play(count) for count in sorted(set(sessions))]
        if promise is not None:
            knees[name] = _knee(rows, play, promise, find_knee)
        results += rows
    return results, knees


def summarize(outcome: Outcome, name: str, sessions: int, kv_bytes: int, promise: Promise | None) -> Result:
    total = max(outcome.total_s, 1e-9)
    prompt = int(outcome.prompt.sum())
    shares = {
        "hbm": int(outcome.hbm.sum()) / max(1, prompt),
        "external": int(outcome.external.sum()) / max(1, prompt),
    }
    return Result(
        configuration=name,
        sessions=sessions,
        turns=len(outcome.ttft_s),
        rejected=outcome.rejected,
        preemptions=outcome.preemptions,
        total_s=outcome.total_s,
        ttft_s={
            "all": _times(outcome, None),
            **{label: _times(outcome, at) for at, label in enumerate(CLASSES)},
        },
        hit_share={**shares, "compute": 1 - sum(shares.values())},
        turns_s=len(outcome.ttft_s) / total,
        prompt_tokens_s=prompt / total,
        output_tokens_s=int(outcome.output.sum()) / total,
        read_gb_s=outcome.read_bytes / 1e9 / total,
        read_peak_gb_s=outcome.load_peak_bytes_s / 1e9,
        written_gb=outcome.written_bytes / 1e9,
        stored_gb=outcome.stored_tokens * kv_bytes / 1e9,
        sessions_within=None if promise is None else _within(outcome, promise),
    )


def _times(outcome: Outcome, klass: int | None) -> dict[str, float | None]:
    values = outcome.ttft_s if klass is None else outcome.ttft_s[outcome.klass == klass]
    if not len(values):
        return dict.fromkeys(("mean", "p50", "p90", "p95", "p99", "max"))
    quantiles = {f"p{round(q * 100)}": outcome.percentile(q, klass) for q in (0.5, 0.9, 0.95, 0.99)}
    return {"mean": float(values.mean()), **quantiles, "max": float(values.max())}


def _within(outcome: Outcome, promise: Promise) -> float | None:
    """Share of the sessions that keep the promise; first turns are left out, nobody can reuse there."""
    later = outcome.klass != 0
    if not later.any():
        later = np.ones_like(later)
    session = outcome.session[later]
    slow = outcome.ttft_s[later] > promise.ttft_s
    count = np.bincount(session)
    over = np.bincount(session, weights=slow)
    seen = count > 0
    kept = over[seen] <= (1 - promise.quantile) * count[seen] + 1e-9
    return float(kept.mean()) if len(kept) else None


def _kept(row: Result, promise: Promise) -> bool:
    return row.turns > 0 and row.sessions_within is not None and row.sessions_within >= promise.quantile


def _knee(rows: list[Result], play: Callable[[int], Result], promise: Promise, exact: bool) -> int | None:
    """Most sessions with the promise kept, below the first number that breaks it; `exact` closes the gap by bisection."""
    low: int | None = None
    high: int | None = None
    for row in rows:
        if not _kept(row, promise):
            high = row.sessions
            break
        low = row.sessions
    if not exact or high is None:
        return low
    bottom, top = low or 0, high
    while top - bottom > max(1, math.floor(bottom * 0.01)):
        middle = (bottom + top) // 2
        if _kept(play(middle), promise):
            bottom = middle
        else:
            top = middle
    return bottom or None
