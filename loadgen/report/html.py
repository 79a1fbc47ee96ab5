"""One HTML file that needs nothing else: styles, uPlot and the data are inside, and all foreign text is escaped."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from loadgen import __version__
from loadgen.report import blocks, charts
from loadgen.report.columns import CLASSES
from loadgen.report.compare import Comparison
from loadgen.report.headline import headline
from loadgen.report.marks import simulated
from loadgen.report.pairing import arms_differ
from loadgen.report.storage import throughput
from loadgen.report.summary import Measured, summary_of, timeline_of
from loadgen.report.why import why

e = html.escape

# (chart, title, what the axes show)
CHARTS = (
    ("spectrum", "TTFT percentiles", "Each curve is one class of turns. It fades where the sample is too small to support the percentile."),
    ("by_turn", "TTFT by turn", "Median of each turn of a conversation; the band runs from the fastest to the slowest."),
    ("timeline", "TTFT over time", "Each dot is a turn at the time it was sent; shaded stripes are the rounds of a sweep, or the time in which every lane had a session."),
    ("cached_share", "TTFT against cached share", "Share of the prompt that the server reported as cached."),
    ("idle_time", "TTFT against idle time", "Time since the session's previous turn ended: how long its KV lay untouched."),
    ("lanes", "Sessions", "A lane a session: waiting for the first token, then the answer (lighter)."),
    ("throughput", "Storage throughput", "Means between samples of the counters, GB = 10⁹ bytes; the line is the link's limit."),
)  # fmt: skip


def asset(name: str) -> str:
    return files("loadgen.report").joinpath("assets", name).read_text(encoding="utf-8")


def page(
    runs: Sequence[Measured],
    comparisons: Sequence[Comparison] = (),
    summaries: Sequence[dict[str, Any]] | None = None,
) -> str:
    """The report of one run, or of several side by side with the comparison of all of their repetitions.

    `summaries` replace the runs' own where a side has several runs (their means).
    """
    summaries = summaries or [summary_of(run) for run in runs]
    different = arms_differ(runs)
    doubts = [("", one) for one in different]
    if comparisons:
        doubts += [("", one) for comparison in comparisons for one in comparison.reasons]
    else:
        doubts += [(run.info.arm if len(runs) > 1 else "", one) for run in runs for one in run.reasons]
    names = " and ".join(run.info.arm for run in runs)
    mark = simulated([run.info for run in runs])
    data: dict[str, Any] = {
        "arms": [chart_data(run) for run in runs],
        "classes": CLASSES,
        "mark": mark,
        "version": __version__,
    }
    explained = why(runs, [drawn["throughput"]["limit"] for drawn in data["arms"]])
    body = [
        "<header>",
        f'<p class="mark">{e(mark)}</p>' if mark else "",
        f"<h1>{e(headline(summaries, comparable=not different))}</h1>",
        f'<p class="sub">{e(_subtitle(runs))}</p>',
        blocks.verdict(list(dict.fromkeys(doubts)), comparisons),
        blocks.cards(summaries, comparable=not different),
        "</header><main>",
        *(
            _section(f"{found.candidate} against {found.baseline}, run against run", blocks.forest(found))
            for found in comparisons
        ),
        _section(
            "Figures",
            blocks.ttft_table(summaries, comparable=not different)
            + blocks.run_table(summaries, comparable=not different)
            + blocks.lateness(runs),
        ),
        *(_figure(*chart, mark) for chart in CHARTS if any(_has(arm[chart[0]]) for arm in data["arms"])),
        _section("Where the KV came from", blocks.tiers(runs, summaries)),
        _section("Why a TTFT is what it is", blocks.explanation(explained)) if explained else "",
        _section("What the tier is worth", value) if (value := blocks.worth(explained)) else "",
        _section("Errors", failed) if (failed := "".join(map(blocks.errors, runs))) else "",
        _section("To repeat it", "".join(map(blocks.repeat, runs))),
        _section("How to read it", _method()),
        "</main>",
    ]
    scripts = [asset("uPlot.iife.min.js"), asset("report.js")]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f'<meta http-equiv="Content-Security-Policy" content="{_policy(scripts)}">'
        f"<title>{e(names)} – loadgen report</title><style>{asset('uPlot.min.css')}{asset('report.css')}</style></head><body>"
        f"{''.join(body)}"
        f'<script type="application/json" id="data">{embedded(data)}</script>'
        f"{''.join(f'<script>{script}</script>' for script in scripts)}</body></html>\n"
    )


def _policy(scripts: Sequence[str]) -> str:
    """No network, and no script but ours, should text ever get through unescaped."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode() for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}"


def chart_data(run: Measured) -> dict[str, Any]:
    """What the script draws of one run."""
    time = timeline_of(run)
    return {
        "arm": run.info.arm,
        "spectrum": charts.spectrum(run),
        "by_turn": charts.by_turn(run),
        "timeline": charts.timeline(run, time),
        "rounds": charts.rounds(run, time),
        "steady": charts.steady(run, time),
        "cached_share": charts.cached_share(run),
        "idle_time": charts.idle_time(run),
        "lanes": charts.lanes(run, time),
        "throughput": throughput(run, time),
    }


def embedded(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _has(data: Any) -> bool:
    """Whether a chart has anything to show."""
    if isinstance(data, dict):
        return bool(data.get("series") or data.get("x") or data.get("lane"))
    return bool(data)


def _section(title: str, content: str) -> str:
    return f"<section><h2>{e(title)}</h2>{content}</section>"


def _figure(name: str, title: str, caption: str, mark: str) -> str:
    small = ' <small class="mark">simulated</small>' if mark else ""
    return (
        f'<section><figure data-chart="{name}"><h2>{e(title)}{small}</h2><div class="legend"></div><div class="plot-area" role="img" aria-label="{e(title)}"></div>'
        f"<figcaption>{e(caption)}</figcaption></figure></section>"
    )


def _subtitle(runs: Sequence[Measured]) -> str:
    info = runs[0].info
    schedule = info.schedule.get("kind", "")
    parts = [
        info.endpoint.model,
        str(info.workload.get("name") or ""),
        f"{info.plan.sessions:,} sessions, {info.plan.turns:,} turns" + (f", {schedule}" if schedule else ""),
        info.created,
    ]
    return " · ".join(part for part in parts if part)


def _method() -> str:
    return (
        '<p class="note">TTFT runs from the first byte of the request handed to the kernel to the first event with content, reasoning '
        "or a tool call. A turn that failed before it ranks as infinitely slow and is never dropped. Percentiles are the value at "
        "rank ceil(q n) of HdrHistogram counts (1 µs to 1 h, 3 significant digits); where the sample is smaller than the percentile "
        "needs (p50 5, p90 29, p95 59, p99 299 turns) the table says so instead. Classes come from the trace: first turns have "
        "nothing to reuse, reuse turns at least half of their prompt. Times are the endpoint's seconds. Details: docs/reading-the-report.md "
        f"and docs/statistics.md of loadgen {e(__version__)}.</p>"
    )
