"""The explanation and the worth of each run that has one, for every form of report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from loadgen.report import words
from loadgen.report.counted import whole_change
from loadgen.report.explain import ColdFit, Explanation, Parts, explain, read_pages
from loadgen.report.storage import throughput
from loadgen.report.summary import Measured, timeline_of, total_s
from loadgen.report.worth import Worth, worth

PARTS = (
    ("client_s", "client"), ("upload_s", "upload"), ("queue_s", "server queue"),
    ("load_s", "load from the tier"), ("recompute_s", "recompute"), ("rest_s", "rest"),
)  # fmt: skip
FLOORS = (("floor_load_s", "load from the tier"), ("floor_recompute_s", "recompute"))


@dataclass(frozen=True)
class Why:
    """One run's explanation; `worth` where it used the external tier."""

    arm: str
    explanation: Explanation
    worth: Worth | None


def why(runs: Sequence[Measured], links_gb_s: Sequence[float | None] | None = None) -> list[Why]:
    """Of the runs whose counters vouch for any turn. `links_gb_s`: `throughput`'s limit of each run, where it is known already.

    The cold curve of a worth may come from another arm's first turns.
    """
    if links_gb_s is None:
        links_gb_s = [throughput(run, timeline_of(run))["limit"] for run in runs]
    explained = []
    for run, link in zip(runs, links_gb_s, strict=True):
        pages = read_pages(run.folder)
        found = explain(
            run.turns,
            pages,
            scale=run.scale,
            connector=run.info.endpoint.server.get("connector"),
            link_bytes_s=None if link is None else link * 1e9,
        )
        if found is not None:
            change = whole_change(run, pages)
            explained.append((run, found, {} if change is None else change.counters))
    fit = next((found.fit for _, found, _ in explained if found.fit is not None), None)
    return [Why(run.info.arm, found, _worth(run, found, fit, counters)) for run, found, counters in explained]


def _worth(
    run: Measured, found: Explanation, fit: ColdFit | None, counters: dict[str, float]
) -> Worth | None:
    total = total_s(run)
    if not total or not sum(parts.external_tokens for parts in found.groups.values()):
        return None
    load_s = sum(parts.load_s for parts in found.groups.values()) if found.load_in == "prefill" else 0.0
    return worth(
        run.turns,
        fit,
        total_s=total,
        load_s=load_s,
        kv_bytes_per_token=found.kv_bytes_per_token,
        # a counter that stands at 0 while tokens came does not count
        loaded_bytes=counters.get("load_bytes") or None,
        stored_bytes=counters.get("store_bytes") or None,
    )


def times(parts: Parts, names: Sequence[tuple[str, str]]) -> list[tuple[str, float]]:
    """(label, mean seconds over the turns of a group) of the parts above 0."""
    means = [(label, (getattr(parts, name) or 0.0) / parts.turns) for name, label in names]
    return [(label, mean) for label, mean in means if mean > 0]


def curve(fit: ColdFit) -> str:
    """The cold curve with what it misses: a residual needs more lengths than the curve has parameters."""
    terms = [
        text
        for size, text in (
            (fit.t0_s, f"T0 {words.seconds(fit.t0_s)}"),
            (fit.a, f"{fit.a * 1e6:.3g} µs a token"),
            (fit.b, f"{fit.b * 1e12:.3g} ps a token²"),
        )
        if size
    ]
    lengths = len(fit.points)
    text = (
        f"cold curve {' + '.join(terms)} from {sum(point.turns for point in fit.points)} turns of "
        f"{lengths} length{'s' if lengths > 1 else ''}"
    )
    return (
        f"{text}, at worst {100 * fit.worst:.1f} % off"
        if fit.spare > 0
        else f"{text}, none left to judge it by"
    )


def notes(found: Sequence[Why]) -> list[str]:
    """What the explanations rest on."""
    said = []
    for one in found:
        explanation = one.explanation
        said.append(
            f"{one.arm}: {explanation.explained} of {explanation.turns} turns explained, load time in "
            f"{explanation.load_in} ({explanation.why})"
        )
        if explanation.fit is not None:
            said.append(f"{one.arm}: {curve(explanation.fit)}")
    if any(parts.floor_load_s for one in found for parts in one.explanation.groups.values()):
        said.append("floor of a load: its bytes over the fastest link's rate")
    return said


def worths(found: Sequence[Why]) -> list[tuple[str, str, float, str]]:
    """(arm, what, value, unit) of each figure that there is."""
    figures = []
    for one in found:
        if one.worth is None:
            continue
        for label, value, unit in (
            ("prefill not spent", one.worth.saved_gpu_s_per_hour, "s an hour of the server"),
            ("waiting for loads", one.worth.loading_gpu_s_per_hour, "s an hour of the server"),
            ("read from the tier", _tera(one.worth.read_bytes_per_day), "TB a day"),
            ("written to the tier", _tera(one.worth.written_bytes_per_day), "TB a day"),
        ):
            if value is not None:
                figures.append((one.arm, label, value, unit))
    return figures


def _tera(value: float | None) -> float | None:
    return None if value is None else value / 1e12


def lines(found: Sequence[Why]) -> list[str]:
    """In plain words, for the terminal and Markdown: a line a group, what it rests on, and the worth."""
    said = []
    for one in found:
        for group, parts in one.explanation.groups.items():
            split = ", ".join(f"{label} {words.seconds(mean)}" for label, mean in times(parts, PARTS))
            text = f"{one.arm}, {group}: {words.seconds(parts.total_s / parts.turns)} = {split}"
            if floor := times(parts, FLOORS):
                text += f" (floor: {', '.join(f'{label} {words.seconds(mean)}' for label, mean in floor)})"
            said.append(text)
    said += notes(found)
    return said + [
        f"{arm}: {label} {words.number(value)} {unit}" for arm, label, value, unit in worths(found)
    ]
