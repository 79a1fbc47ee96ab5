"""The Markdown form of runs, comparisons and verdicts, fit for a GitHub job summary."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from loadgen.report.compare import Comparison, Finding
from loadgen.report.gate import Verdict
from loadgen.report.headline import headline
from loadgen.report.marks import simulated
from loadgen.report.pairing import arms_differ
from loadgen.report.rows import rows
from loadgen.report.summary import Measured
from loadgen.report.table import by_arm
from loadgen.report.validity import Reason
from loadgen.report.why import lines, why
from loadgen.report.words import number, seconds

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!&])")
_MARK = {"pass": "✅ pass", "fail": "❌ fail", "invalid": "⛔ invalid", "inconclusive": "❔ inconclusive"}


def m(text: str) -> str:
    """Escape text so that it shows as it is: no markup, no HTML, one line."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def runs(measured: Sequence[Measured]) -> str:
    """Runs side by side: headline, marks, the table, why a TTFT is what it is, and what makes any of them invalid."""
    summaries = by_arm(measured)
    different = arms_differ(measured)
    found = [*different, *(one for run in measured for one in run.reasons)]
    mark = simulated([run.info for run in measured])
    parts = [
        f"**{m(headline(summaries, comparable=not different))}**",
        *([f"> {m(mark)}"] if mark else []),
        table(summaries, comparable=not different),
    ]
    if explained := lines(why(measured)):
        parts.append("\n".join(f"- {m(line)}" for line in explained) + "\n")
    if found:
        parts.append("\n".join(["**INVALID**: these numbers may not be used.", "", *reasons(found)]) + "\n")
    return "\n\n".join(parts)


def table(summaries: Sequence[dict[str, Any]], *, comparable: bool = True) -> str:
    """Arms side by side."""
    speedups = [f"speed-up {m(s['arm'])}" for s in summaries[1:]] if comparable else []
    lines = _head(["", *(m(s["arm"]) for s in summaries), *speedups])
    for row in rows(list(summaries)):
        label = row.label if row.section in ("run", "rate", "turns") else f"{row.section}: {row.label}"
        lines.append(_line([label, *map(m, row.cells), *(row.speedups if comparable else [])]))
    return "\n".join(lines) + "\n"


def comparison(found: Comparison) -> str:
    """A comparison: its sentence, then every figure with its interval."""
    parts = [
        *([f"> {m(found.mark)}", ""] if found.mark else []),
        f"**{found.outcome.upper()}**: {m(found.sentence)}",
        "",
    ]
    parts += _head(["", m(found.baseline), m(found.candidate), "ratio", "95 % interval", "p (Holm)"])
    for finding in [*([found.primary] if found.primary else []), *found.others]:
        parts.append(_line([finding.label, *finding_cells(finding)]))
    if found.tpot:
        parts += ["", m(found.tpot)]
    parts += [f"- {m(difference)}" for difference in found.servers]
    return "\n".join([*parts, *reasons(found.reasons)]) + "\n"


def finding_cells(finding: Finding) -> list[str]:
    """Mean of each side, ratio, interval and adjusted p of one figure; the primary endpoint's p is its own."""
    show = seconds if finding.unit == "s" else number
    interval = finding.interval
    p = finding.p_holm if finding.p_holm is not None else finding.difference.p
    return [
        show(sum(finding.baseline) / len(finding.baseline)),
        show(sum(finding.candidate) / len(finding.candidate)),
        f"{finding.difference.ratio:.3f}",
        "–" if interval is None else f"{interval[0]:.3f} to {interval[1]:.3f}",
        "–" if p is None else "<0.0001" if p < 1e-4 else f"{p:.2g}",
    ]


def verdict(found: Verdict) -> str:
    """A gate: the headline, then a line a check."""
    lines = [f"## loadgen gate: {_MARK[found.outcome]}", "", *_head(["check", "run", "result", ""])]
    lines += [
        _line([m(check.name), m(check.run), _MARK[check.outcome], m(check.sentence)])
        for check in found.checks
    ]
    return "\n".join(lines) + "\n" + (f"\n{comparison(found.comparison)}" if found.comparison else "")


def reasons(found: Sequence[Reason]) -> list[str]:
    """A bullet a reason for which the numbers may not be used."""
    return [f"- **{m(one.code)}**: {m(str(one))} {m(one.remedy)}" for one in found]


def _head(cells: Sequence[str]) -> list[str]:
    return [_line(cells), _line(["---", *("---:" for _ in cells[1:])])]


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
