"""Numbers to explain a run with: the cold curve without writes, and the three write taxes.

| tax | difference of cold TTFTs |
|---|---|
| config | with the connector and `skip_save`, against a server without a connector |
| store | first store after a drain, against `skip_save` |
| backlog | store behind a store, against first store after a drain |

Kinds are interleaved in random order, each with at least six turns, so that a drift meets all of them.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from statistics import fmean

from loadgen.doctor.checks.tier import SKIP_SAVE, Controls, Shot, quiet, shoot
from loadgen.doctor.finding import Finding, Status
from loadgen.doctor.patient import Patient, salt, text
from loadgen.report.explain import fit_cold

_TURNS = 6
_LENGTHS = (1 / 8, 1 / 4, 1 / 2, 1)  # of the target; four, so that the curve has a residual to judge by
_SETTLE_S = 3.0


def cold_curve(patient: Patient, found: Controls, target: int) -> Iterator[Finding]:
    """T0, a and b of T_cold(L) = T0 + a L + b L^2, from cold prompts of four lengths, without writes where they can be had."""
    extra = SKIP_SAVE if found.skip_save else {}
    points: list[tuple[int, float]] = []
    for length in (max(256, int(target * share)) for share in _LENGTHS):
        for _ in range(2):
            if not found.skip_save:
                quiet(patient, _SETTLE_S)
            shot = shoot(patient, text(length), {"cache_salt": salt(), **extra})
            if shot.asked.error is not None or shot.ttft_s is None or shot.asked.prompt_tokens is None:
                yield Finding(
                    check="cold curve", status=Status.SKIP, seen=f"{length} tokens: {shot.asked.error}"
                )
                return
            if shot.cold:
                points.append((shot.asked.prompt_tokens // 64 * 64, shot.ttft_s))
    fit = fit_cold(points)
    if fit is None:
        yield Finding(check="cold curve", status=Status.SKIP, seen="no prompt was cold")
        return
    writes = (
        "without writes"
        if found.skip_save
        else "writes included, since skip_save is not known to be honoured"
    )
    residuals = ", ".join(f"{p.tokens:,}: {p.measured_s:.3f} s ({p.residual:+.1%})" for p in fit.points)
    yield Finding(
        check="cold curve",
        status=Status.OK if fit.worst < 0.1 else Status.WARN,
        seen=f"T0 {fit.t0_s * 1e3:.1f} ms, a {fit.a * 1e6:.3f} µs/token, b {fit.b * 1e12:.3f} ps/token²; {residuals}",
        meaning=f"Cold TTFT of this server, {writes}; explains what a tail costs and what a hit saves."
        + (
            ""
            if fit.worst < 0.1
            else " The curve misses a length by more than 10 %: something else grows with length."
        ),
        data={
            "t0_s": fit.t0_s,
            "a": fit.a,
            "b": fit.b,
            "writes": not found.skip_save,
            "points": [{**p._asdict(), "residual": p.residual} for p in fit.points],
        },
    )


def write_taxes(patient: Patient, found: Controls, off: Patient | None) -> Iterator[Finding]:
    """The three taxes of a first turn of `probe_tokens`; `off` is the same server without a connector."""
    if not found.skip_save:
        yield Finding(
            check="write tax",
            status=Status.SKIP,
            seen="skip_save is not known to be honoured here",
            meaning="A cold TTFT without the write cannot be had on this server; compare whole runs of both arms instead.",
        )
        return
    kinds = ["skip", "store", "backlog"] + (["off"] if off is not None else [])
    times: dict[str, list[float]] = {kind: [] for kind in kinds}
    plan = kinds * _TURNS
    random.Random(0).shuffle(plan)
    for kind in plan:
        shot = _turn(patient, off, kind)
        if shot.ttft_s is not None and shot.asked.error is None and shot.cold:
            times[kind].append(shot.ttft_s)
    for name, less, more, meaning in (
        ("config", "off", "skip", "the connector's presence: lookups, another memory layout"),
        ("store", "skip", "store", "the store of one prompt when nothing else is being written"),
        (
            "backlog",
            "store",
            "backlog",
            "waiting for earlier writes: the tier writes more slowly than prompts come",
        ),
    ):
        if less not in times:
            yield Finding(
                check=f"write tax, {name}",
                status=Status.SKIP,
                seen="needs --off-host, the same server without a connector",
            )
        else:
            yield _tax(name, times[less], times[more], meaning)


def _turn(patient: Patient, off: Patient | None, kind: str) -> Shot:
    """One cold turn of a kind, with what must come before it."""
    if kind == "off" and off is not None:
        return shoot(off, text(off.probe_tokens), {"cache_salt": salt()})
    quiet(patient, _SETTLE_S)
    if kind == "backlog":
        shoot(patient, text(patient.probe_tokens), {"cache_salt": salt()})
    extra = SKIP_SAVE if kind == "skip" else {}
    return shoot(patient, text(patient.probe_tokens), {"cache_salt": salt(), **extra})


def _tax(name: str, less: Sequence[float], more: Sequence[float], meaning: str) -> Finding:
    if min(len(less), len(more)) < 2:
        return Finding(
            check=f"write tax, {name}", status=Status.SKIP, seen="fewer than two cold turns of a kind"
        )
    tax, low, high = difference_of_means(less, more)
    share = tax / (sum(less) / len(less))
    shown = low > 0
    return Finding(
        check=f"write tax, {name}",
        status=Status.NOTE,
        seen=f"{tax * 1e3:+.1f} ms ({share:+.1%}), 95 % interval {low * 1e3:+.1f} to {high * 1e3:+.1f} ms, {len(less)} and {len(more)} turns",
        meaning=(meaning[0].upper() + meaning[1:] + ".") if shown else f"No tax is shown ({meaning}).",
        data={"tax_s": tax, "low_s": low, "high_s": high, "share": share},
    )


def difference_of_means(a: Sequence[float], b: Sequence[float]) -> tuple[float, float, float]:
    """mean(b) - mean(a) with its 95 % interval (Welch)."""
    tax = fmean(b) - fmean(a)
    if max(max(side) - min(side) for side in (a, b)) < 1e-9:  # no spread at all: a simulation
        return tax, tax, tax
    from scipy import stats  # takes half a second to import, and only calibration needs it

    low, high = stats.ttest_ind(b, a, equal_var=False).confidence_interval(0.95)
    return tax, float(low), float(high)
