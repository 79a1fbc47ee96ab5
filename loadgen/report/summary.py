"""`summary.json` (design, section 3), always computed from the samples.

Times are endpoint seconds: wall time multiplied by the endpoint's time scale; the client's own lag stays wall time.
A percentile is null when the sample cannot support it (fewer turns than `figures.NEEDED`) or when its rank falls on a
censored turn; a mean is null when any turn is censored. `max` is the largest time that was observed.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from loadgen.errors import InputError
from loadgen.measure import metrics
from loadgen.measure.hist import Histogram, HistogramSet, rank
from loadgen.measure.run import PROTOCOL, RUN_FILE, RunInfo, read_run
from loadgen.report import checks
from loadgen.report.client import Client, read_client
from loadgen.report.columns import ABSENT, CLASSES, Bools, Ints, Turns, load
from loadgen.report.figures import NEEDED, QUANTILES, histograms, to_us
from loadgen.report.steady import steady
from loadgen.report.validity import Reason

SUMMARY_FILE = "summary.json"
GROUPS = ("all", "first", "reuse", "rebuilt")  # `retry` joins them when the run has such turns


class Measured(msgspec.Struct):
    """One run, read once, for every form of report."""

    folder: Path
    info: RunInfo
    turns: Turns
    client: Client
    histograms: HistogramSet
    reasons: list[Reason]

    @property
    def scale(self) -> float:
        return self.info.endpoint.time_scale


class Timeline(msgspec.Struct, frozen=True):
    """Wall-time stamps as endpoint seconds since the run's first intended start."""

    origin_ns: int
    scale: float

    def seconds(self, wall_ns: Any) -> Any:
        return (wall_ns - self.origin_ns) / 1e9 * self.scale


def timeline_of(run: Measured) -> Timeline:
    return Timeline(int(run.turns.intended_ns.min()) if len(run.turns) else 0, run.scale)


def measure(run_dir: Path) -> Measured:
    """Read a run folder. Raises InputError when it is none, or its samples are damaged."""
    info = read_run(run_dir)
    if not 0 < info.endpoint.time_scale < math.inf:
        raise InputError(
            f"{run_dir / RUN_FILE}: endpoint.time_scale is {info.endpoint.time_scale}, it must be above 0"
        )
    turns = load(run_dir, info)
    client = read_client(run_dir)
    found = histograms(turns, info.endpoint.time_scale)
    return Measured(run_dir, info, turns, client, found, checks.reasons(turns, info, client))


def summarize(run_dir: Path) -> dict[str, Any]:
    """The summary of a run folder, from run.json and the samples alone."""
    return summary_of(measure(run_dir))


def summary_of(run: Measured) -> dict[str, Any]:
    """The content of `summary.json`."""
    total = total_s(run)
    names = [*GROUPS, *(["retry"] if run.turns.of_class("retry").any() else [])]
    return {
        "protocol": PROTOCOL,
        "arm": run.info.arm,
        "valid": not run.reasons,
        "reasons": [msgspec.to_builtins(one) for one in run.reasons],
        "total_s": total,
        "time_scale": run.scale,
        "groups": {name: group(run, name) for name in names},
        "rate": _rate(run, total),
        "sessions": _sessions(run),
        "tiers": _tiers(run.turns),
        "client": _client(run),
        "steady": steady(run.turns, run.info, timeline_of(run).origin_ns),
    }


def member(turns: Turns, name: str) -> Bools:
    """Which turns belong to a group, [N]."""
    return turns.of_class(name) if name in CLASSES else np.ones(len(turns), dtype=np.bool_)


def total_s(run: Measured) -> float | None:
    """First intended start to the end of the last turn; None when planned turns were never sent, nothing was, or the run
    paused (it was resumed)."""
    if run.info.resumed or not len(run.turns) or checks.planned_gap(run.turns, run.info)[1]:
        return None
    return float(run.turns.end_ns.max() - run.turns.intended_ns.min()) / 1e9 * run.scale


def group(run: Measured, name: str) -> dict[str, Any]:
    """Figures of one group of turns."""
    turns, inside = run.turns, member(run.turns, name)
    ended = inside & turns.ok & ~turns.aborted
    figures = {metric: spread(run.histograms.get(metric, name)) for metric in metrics.METRICS}
    return {
        "turns": int(np.count_nonzero(inside)),
        "errors": int(np.count_nonzero(inside & ~turns.ok)),
        "censored": int(np.count_nonzero(inside & (turns.first_token_ns == ABSENT))),
        "aborted": int(np.count_nonzero(inside & turns.aborted)),
        **figures,
        "prompt_tokens": _sum(turns.prompt_tokens, ended),
        "cached_tokens": _sum(turns.cached_tokens, ended),
        "expected_reuse": _sum(turns.expected_reuse, ended),
        "output_tokens": _sum(turns.output_tokens, ended),
    }


def spread(histogram: Histogram) -> dict[str, float | None]:
    """Mean, percentiles and maximum in seconds."""
    n = histogram.n
    values = histogram.percentiles_us(tuple(QUANTILES.values()))
    found: dict[str, float | None] = {"mean": _seconds(histogram.mean_us())}
    for (name, _), value in zip(QUANTILES.items(), values, strict=True):
        found[name] = _seconds(value) if n >= NEEDED[name] else None
    found["max"] = _seconds(histogram.max)
    return found


def _seconds(us: float | None) -> float | None:
    return None if us is None else us / 1e6


def _sum(values: Ints, inside: Bools) -> int | None:
    """Sum over these turns; null where one of them lacks the figure, or there is none."""
    chosen = values[inside]
    if not chosen.size or (chosen == ABSENT).any():
        return None
    return int(chosen.sum())


def _rate(run: Measured, total: float | None) -> dict[str, float | None]:
    ok = run.turns.ok
    whole = ok & ~run.turns.aborted  # a turn cut as the recorded one was has no usage to count
    output, prompt = _sum(run.turns.output_tokens, whole), _sum(run.turns.prompt_tokens, whole)
    limit_s = run.info.policy.get("slo_ttft_s")
    good = None
    if limit_s is not None:
        ttft = to_us(run.turns.first_token_ns - run.turns.send_ns, run.scale)
        good = int(np.count_nonzero(ok & (ttft <= float(limit_s) * 1e6)))
    return {
        "output_tokens_s": _per(output, total),
        "prompt_tokens_s": _per(prompt, total),
        "turns_s": _per(int(np.count_nonzero(ok)), total),
        "goodput": _per(
            good, total
        ),  # turns a second within policy.slo_ttft_s; null when the run declared no SLO
    }


def _per(amount: int | None, seconds: float | None) -> float | None:
    return None if amount is None or not seconds else amount / seconds


def _sessions(run: Measured) -> dict[str, Any]:
    turns = run.turns
    count = len(turns.sessions)
    begin = np.full(count, np.iinfo(np.int64).max)
    end = np.zeros(count, dtype=np.int64)
    np.minimum.at(begin, turns.session, turns.intended_ns)
    np.maximum.at(end, turns.session, turns.end_ns)
    job_us = to_us(end - begin, run.scale)
    # a turn that never had a first token stalled its session until it ended
    stalled = np.where(turns.first_token_ns != ABSENT, turns.first_token_ns, turns.end_ns) - turns.send_ns
    whole = float((end - begin).sum())
    return {
        "n": count,
        "job_s": _raw_spread(job_us),
        # a sweep's sessions wait for one another, so their life says nothing about their stalls
        "stall_share": float(stalled.sum()) / whole
        if whole and run.info.schedule.get("kind") != "sweep"
        else None,
        "cut": checks.planned_gap(turns, run.info)[0],
    }


def _raw_spread(us: Ints) -> dict[str, float | None]:
    """Like `spread`, of raw values: a job may take longer than a histogram's hour."""
    ordered = np.sort(us)
    n = int(ordered.size)
    found: dict[str, float | None] = {"mean": float(ordered.mean()) / 1e6 if n else None}
    for name, q in QUANTILES.items():
        found[name] = float(ordered[rank(q, n) - 1]) / 1e6 if n >= NEEDED[name] else None
    found["max"] = float(ordered[-1]) / 1e6 if n else None
    return found


def _tiers(turns: Turns) -> dict[str, int]:
    """Prompt tokens by source over the turns that ended well; a turn without a source counts as unknown."""
    sourced = turns.ok & (turns.tiers[:, 0] != ABSENT)
    compute, hbm, external, unknown = (int(turns.tiers[sourced, column].sum()) for column in range(4))
    unsourced = turns.ok & ~sourced & (turns.prompt_tokens != ABSENT)
    return {
        "compute": compute,
        "hbm": hbm,
        "external": external,
        "unknown": unknown + int(turns.prompt_tokens[unsourced].sum()),
    }


def _client(run: Measured) -> dict[str, Any]:
    turns = run.turns
    kernel = int(np.count_nonzero(turns.kernel_clock))
    lag = Histogram()
    lag.record_many(turns.lag_ns[turns.lag_ns != ABSENT] // 1000)
    loop = run.client.loop_lag_us() if run.client.observed else None
    return {
        "clock": "kernel" if kernel == len(turns) else "loop" if not kernel else "mixed",
        "lag_s": spread(lag),
        "coalesced": int(np.count_nonzero(turns.coalesced)),
        "loop_lag_s": {name: _seconds(getattr(loop, name, None)) for name in ("p50", "p99", "max")},
    }
