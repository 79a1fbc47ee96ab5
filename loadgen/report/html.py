"""One HTML file that needs nothing else: styles, uPlot and the data are inside, and all foreign text is escaped."""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from loadgen.report import charts
from loadgen.report.compare import Comparison
from loadgen.report.marks import simulated
from loadgen.report.rows import rows
from loadgen.report.summary import Measured, summary_of
from loadgen.report.table import arms_differ
from loadgen.report.validity import Reason

e = html.escape


def asset(name: str) -> str:
    return files("loadgen.report").joinpath("assets", name).read_text(encoding="utf-8")


def page(runs: Sequence[Measured], comparisons: Sequence[Comparison] = ()) -> str:
    """The report of one run, or of several side by side."""
    summaries = [summary_of(run) for run in runs]
    different = arms_differ(runs)
    reasons = [*different, *(one for run in runs for one in run.reasons)]
    names = " against ".join(run.info.arm for run in runs)
    data = [
        {"arm": run.info.arm, "by_turn": charts.by_turn(run), "timeline": charts.timeline(run)}
        for run in runs
    ]
    body = [
        f"<header><h1>{e(names)}</h1>",
        f'<p class="mark">{e(mark)}</p>' if (mark := simulated([run.info for run in runs])) else "",
        _verdict(reasons),
        "</header>",
        f"<section><h2>Figures</h2>{_table(summaries, comparable=not different)}</section>",
        '<section><h2>TTFT by turn</h2><div class="chart" data-chart="by_turn"></div></section>',
        '<section><h2>TTFT over time</h2><div class="chart" data-chart="timeline"></div></section>',
        f"<section><h2>To repeat it</h2>{''.join(_repeat(run) for run in runs)}</section>",
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{e(names)} – loadgen</title><style>{asset('uPlot.min.css')}{asset('report.css')}</style></head><body>"
        f"{''.join(body)}"
        f'<script type="application/json" id="data">{embedded(data)}</script>'
        f"<script>{asset('uPlot.iife.min.js')}</script><script>{asset('report.js')}</script></body></html>\n"
    )


def embedded(value: Any) -> str:
    """JSON that cannot end the script element it stands in."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"), allow_nan=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _verdict(reasons: Sequence[Reason]) -> str:
    if not reasons:
        return '<p class="verdict valid">Valid run</p>'
    items = "".join(f"<li>{e(str(one))} <em>{e(one.remedy)}</em></li>" for one in reasons)
    return f'<div class="verdict invalid"><p>Invalid: these numbers may not be used</p><ul>{items}</ul></div>'


def _table(summaries: Sequence[dict[str, Any]], *, comparable: bool) -> str:
    speedups = len(summaries) - 1 if comparable else 0
    head = "".join(f"<th>{e(s['arm'])}</th>" for s in summaries)
    head += "".join(
        f"<th>speed-up {e(s['arm']) if len(summaries) > 2 else ''}</th>" for s in summaries[1 : speedups + 1]
    )
    parts = [f'<div class="scroll"><table><thead><tr><th></th>{head}</tr></thead>']
    section = None
    for row in rows(list(summaries)):
        if row.section != section:
            section = row.section
            parts.append(
                f'<tbody><tr class="section"><th colspan="{1 + len(summaries) + speedups}">{e(section)}</th></tr>'
            )
        cells = "".join(f"<td>{e(cell)}</td>" for cell in (*row.cells, *row.speedups[:speedups]))
        parts.append(f"<tr><th>{e(row.label)}</th>{cells}</tr>")
    return "".join(parts) + "</table></div>"


def _repeat(run: Measured) -> str:
    info = run.info
    facts: dict[str, Any] = {
        "run": info.run,
        "arguments": " ".join(info.arguments),
        "workload": info.workload,
        "schedule": info.schedule,
        "policy": info.policy,
        "seed": info.seed,
        "endpoint": {"url": info.endpoint.url, "model": info.endpoint.model, "server": info.endpoint.server},
        "versions": info.versions,
        "machine": info.machine,
        "notes": info.notes,
    }
    lines = "".join(
        f"<dt>{e(name)}</dt><dd>{e(value if isinstance(value, str) else json.dumps(value))}</dd>"
        for name, value in facts.items()
        if value not in ({}, [], "")
    )
    return f"<h3>{e(info.arm)}</h3><dl>{lines}</dl>"
