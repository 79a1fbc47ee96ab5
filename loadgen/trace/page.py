"""`loadgen trace show --html`: the trace's distributions and its hit curve on one page that opens offline.

uPlot is the copy that the reports ship (an asset, not code of `report`). All text of the trace is escaped.
"""

from __future__ import annotations

import html
import json
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np

from loadgen.outfile import refuse_input, write_file
from loadgen.trace.curve import Curve
from loadgen.trace.features import conversations
from loadgen.trace.reader import TraceFile

_POINTS = 200
_TURNS = 300  # turns whose context growth is drawn


def write_page(trace: TraceFile, figures: dict[str, Any], curve: Curve | None, out: Path) -> None:
    """Write the page. Raises InputError when the file cannot be written or belongs to the trace."""
    refuse_input(out, trace.files(), "--html")
    plots = ([] if curve is None else _curve_plots(curve, figures["residency"])) + _distribution_plots(trace)
    data = json.dumps(plots, allow_nan=False).replace("</", "<\\/")
    assets = files("loadgen.report").joinpath("assets")
    script, style = (
        assets.joinpath(name).read_text(encoding="utf-8") for name in ("uPlot.iife.min.js", "uPlot.min.css")
    )
    title = html.escape(figures["name"] or trace.path.name)
    share = figures["ideal_hit_share"]
    facts = [
        f"{figures['sessions']:,} sessions, of them {figures['sub_agents']:,} sub-agents",
        f"{figures['turns']:,} turns",
        "ideal hit share unknown"
        if share is None
        else f"ideal hit share {share:.1%} (by {figures['ideal_hit_basis']})",
    ]
    if figures["compactions"] is not None:
        facts.append(
            f"{figures['compactions']:,} compactions, {figures['breaks']:,} other breaks of the prefix"
        )
    listed = "".join(f"<li>{html.escape(fact)}</li>" for fact in facts)
    page = (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{style}{_STYLE}</style>'
        f"<h1>{title}</h1><p>{html.escape(trace.header.fidelity)}, from {html.escape(figures['source'] or 'an unknown source')}</p>"
        f'<ul>{listed}</ul><div id="plots"></div><script>{script}</script>'
        f'<script type="application/json" id="data">{data}</script><script>{_SCRIPT}</script></html>\n'
    )
    write_file(out, page)


def _curve_plots(curve: Curve, found: dict[str, Any]) -> list[dict[str, Any]]:
    top = max(float(curve.footprint), 10.0)
    sizes = np.geomspace(max(top / 1e5, 1.0), top, _POINTS)
    marks = [{"x": row["tokens"], "text": row["tier"]} for row in found["curve"] if row["tier"]]
    waits = np.geomspace(1, 86400, _POINTS)
    return [
        _plot(
            "Hit share against cache size (LRU)",
            "tokens in the cache",
            sizes,
            {"hit share, %": curve.hit_share(list(sizes)) * 100},
            marks,
        ),
        _plot(
            "When shared tokens are used again",
            "seconds since the last use",
            waits,
            {"share used by then, %": curve.within(list(waits)) * 100},
        ),
    ]


def _distribution_plots(trace: TraceFile) -> list[dict[str, Any]]:
    if trace.header.fidelity == "lengths":
        turns = [turn for session in trace.sessions for turn in trace.turns(session.id)]
        return _cdf("Prompt tokens", "tokens", [t.input_tokens or 0 for t in turns]) + _cdf(
            "Output tokens", "tokens", [t.output_tokens or 0 for t in turns]
        )
    found = list(conversations(trace))
    steps = [step for conversation in found for step in conversation.steps]
    by_turn = [
        [c.steps[i].prompt for c in found if len(c.steps) > i]
        for i in range(min(_TURNS, max((len(c.steps) for c in found), default=0)))
    ]
    plots = []
    if len(by_turn) > 1:
        bands = {f"p{q}": np.array([np.percentile(row, q) for row in by_turn]) for q in (10, 50, 90)}
        plots.append(_plot("Context by turn", "turn", np.arange(1, len(by_turn) + 1), bands, log=False))
    return (
        plots
        + _cdf("Turns of a session", "turns", [len(c.steps) for c in found])
        + _cdf("New prompt tokens of a turn", "tokens", [s.new for s in steps])
        + _cdf("Output tokens of a turn", "tokens", [s.output for s in steps if s.output is not None])
        + _cdf(
            "Gap after a tool",
            "seconds",
            [s.gap_s for s in steps if s.gap_kind == "tool" and s.gap_s is not None],
        )
        + _cdf(
            "Gap of a human",
            "seconds",
            [s.gap_s for s in steps if s.gap_kind == "human" and s.gap_s is not None],
        )
        + _cdf("Turns of a sub-agent", "turns", [len(c.steps) for c in found if c.session.parent is not None])
    )


def _cdf(title: str, axis: str, values: Sequence[float]) -> list[dict[str, Any]]:
    """The share of values up to x; nothing for fewer than two different positive ones."""
    positive = np.array([value for value in values if value > 0], dtype=np.float64)
    if len(positive) < 2 or positive.min() == positive.max():
        return []
    x = np.geomspace(positive.min(), positive.max(), _POINTS)
    share = (
        np.searchsorted(np.sort(np.asarray(values, dtype=np.float64)), x, side="right") / len(values) * 100
    )
    return [_plot(title, axis, x, {"share up to this, %": share})]


def _plot(
    title: str,
    axis: str,
    x: Any,
    series: dict[str, Any],
    marks: Sequence[dict[str, Any]] = (),
    log: bool = True,
) -> dict[str, Any]:
    def short(values: Any) -> list[float]:
        return [float(f"{value:.5g}") for value in values]

    return {
        "title": title,
        "axis": axis,
        "log": log,
        "x": short(x),
        "series": {name: short(y) for name, y in series.items()},
        "marks": list(marks),
    }


_STYLE = "body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem}#plots{display:grid;grid-template-columns:repeat(auto-fill,minmax(30rem,1fr));gap:2rem}h2{font-size:1rem;margin:0}"
_SCRIPT = """
const colours = ['#3465a4', '#c17d11', '#73a839'];
const short = v => v >= 1e9 ? v / 1e9 + 'G' : v >= 1e6 ? v / 1e6 + 'M' : v >= 1e3 ? v / 1e3 + 'k' : '' + v;
for (const p of JSON.parse(document.getElementById('data').textContent)) {
  const box = document.createElement('div'), head = document.createElement('h2');
  head.textContent = p.title; box.append(head); document.getElementById('plots').append(box);
  const draw = u => { for (const m of p.marks) {
    const x = u.valToPos(m.x, 'x', true), c = u.ctx; if (!isFinite(x)) continue;
    c.save(); c.strokeStyle = c.fillStyle = '#a40000'; c.beginPath(); c.moveTo(x, u.bbox.top); c.lineTo(x, u.bbox.top + u.bbox.height); c.stroke();
    c.fillText(m.text, x + 4, u.bbox.top + 14); c.restore(); } };
  new uPlot({ width: 480, height: 260, hooks: { draw: [draw] },
    scales: { x: { time: false, distr: p.log ? 3 : 1 } },
    axes: [{ label: p.axis, values: (u, vs) => vs.map(v => v === null ? '' : short(v)) }, { values: (u, vs) => vs.map(short) }],
    series: [{ label: p.axis }, ...Object.keys(p.series).map((label, i) => ({ label, stroke: colours[i % 3], width: 1.5 }))] },
    [p.x, ...Object.values(p.series)], box);
}
"""
