"""The grid of a what-if as one page of HTML that needs nothing else."""

from __future__ import annotations

import html

from loadgen.sim.grid import Grid, Result

_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:80rem;padding:0 1rem;color:#1b1f24;background:#fff}
table{border-collapse:collapse;width:100%;margin:1rem 0}caption{text-align:left;font-weight:600;padding:.4rem 0}
th,td{padding:.35rem .6rem;border-bottom:1px solid #d8dee4;text-align:right}td{white-space:nowrap}
th:first-child,td:first-child{text-align:left}thead th{border-bottom:2px solid #57606a}
.bar{display:flex;width:6rem;height:.8rem;background:#eaeef2}.hbm{background:#1a7f37}.external{background:#0969da}
.kept{background:#dafbe1}.broken{background:#ffebe9}.note{color:#57606a}
@media(prefers-color-scheme:dark){body{color:#e6edf3;background:#0d1117}th,td{border-color:#30363d}.bar{background:#30363d}
.kept{background:#12391f}.broken{background:#4b1113}.note{color:#9198a1}}
"""


def render(grid: Grid) -> str:
    """The page. Everything from files is escaped."""
    title = f"What if: {grid.profile}"
    promise = grid.promise
    told = (
        f" The promise: at most {(1 - promise.quantile) * 100:g} % of a session's later turns wait over {promise.ttft_s:g} s, "
        f"for {promise.quantile * 100:g} % of the sessions."
        if promise
        else ""
    )
    parts = [
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>",
        f"<title>{html.escape(title)}</title><style>{_STYLE}</style><h1>{html.escape(title)}</h1>",
        f"<p>Simulated: the profile's numbers, not evidence about a server. Trace {html.escape(grid.trace)}, "
        f"schedule {html.escape(grid.schedule)}, answers {html.escape(grid.answers)}.{told}</p>",
    ]
    if grid.knee:
        parts.append(
            "<table><caption>Most sessions with the promise kept</caption><thead><tr><th>configuration<th>sessions<tbody>"
        )
        parts += [
            f"<tr><td>{html.escape(name)}<td>{'none' if knee is None else f'{knee:,}'}"
            for name, knee in grid.knee.items()
        ]
        parts.append("</table>")
    for name in dict.fromkeys(result.configuration for result in grid.results):
        parts.append(
            _table(
                name,
                [result for result in grid.results if result.configuration == name],
                promise.quantile if promise else None,
            )
        )
    parts.append(
        "<p class=note>Bars: prompt tokens from HBM (green) and from external tiers (blue); the rest was computed.</p></html>\n"
    )
    return "\n".join(parts)


def _table(name: str, rows: list[Result], quantile: float | None) -> str:
    heads = [
        "sessions",
        "turns",
        "reuse TTFT p50",
        "p95",
        "p99",
        "first TTFT p50",
        "hits",
        "turns/s",
        "read GB/s",
        "peak",
        "stored GB",
        "preempted",
    ]
    if quantile is not None:
        heads.append("sessions within")
    lines = [
        f"<table><caption>{html.escape(name)}</caption><thead><tr>"
        + "".join(f"<th>{head}" for head in heads)
        + "<tbody>"
    ]
    for row in rows:
        reuse, first = row.ttft_s["reuse"], row.ttft_s["first"]
        hbm, external = row.hit_share["hbm"] * 100, row.hit_share["external"] * 100
        cells = [
            f"{row.sessions:,}", f"{row.turns:,}", _seconds(reuse["p50"]), _seconds(reuse["p95"]), _seconds(reuse["p99"]),
            _seconds(first["p50"]),
            f"<span class=bar title='HBM {hbm:.1f} %, external {external:.1f} %'><i class=hbm style='width:{hbm:.1f}%'></i>"
            f"<i class=external style='width:{external:.1f}%'></i></span>",
            f"{row.turns_s:.2f}", f"{row.read_gb_s:.2f}", f"{row.read_peak_gb_s:.2f}", f"{row.stored_gb:,.0f}", f"{row.preemptions:,}",
        ]  # fmt: skip
        line = "<tr>" + "".join(f"<td>{cell}" for cell in cells)
        if row.sessions_within is not None and quantile is not None:
            kind = "kept" if row.sessions_within >= quantile else "broken"
            line += f"<td class={kind}>{row.sessions_within * 100:.1f} %"
        lines.append(line)
    return "".join(lines) + "</table>"


def _seconds(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f} s" if value < 100 else f"{value:,.0f} s"
