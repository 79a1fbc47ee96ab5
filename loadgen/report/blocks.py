"""Parts of the HTML report that need no script: cards, tables, bars and intervals. Everything foreign is escaped here."""

from __future__ import annotations

import html
import json
import math
from collections.abc import Sequence
from typing import Any

import msgspec

from loadgen.report import words
from loadgen.report.compare import GROUP_NAMES, Comparison, Finding
from loadgen.report.counted import counted
from loadgen.report.headline import tail, typical
from loadgen.report.markdown import finding_cells
from loadgen.report.rows import rows, speedup
from loadgen.report.summary import Measured
from loadgen.report.validity import Reason
from loadgen.report.why import FLOORS, PARTS, Why, notes, times, worths

e = html.escape
Summary = dict[str, Any]
TIERS = (
    ("compute", "computed"),
    ("hbm", "from HBM"),
    ("external", "from external tier"),
    ("unknown", "source unknown"),
)


def verdict(doubts: Sequence[tuple[str, Reason]], comparisons: Sequence[Comparison]) -> str:
    """The stamp: valid or not, and what the comparison says. `doubts`: (arm or "", reason)."""
    parts = []
    for found in comparisons:
        kind = {"faster": "good", "slower": "bad", "invalid": "bad", "no difference shown": "plain"}.get(
            found.outcome, "warn"
        )
        parts.append(f'<p class="stamp {kind}"><b>{e(found.outcome)}</b> {e(found.sentence)}</p>')
    if not doubts:
        parts.append(
            '<p class="stamp good"><b>valid</b> Every check of the client, the prompts and the server passed.</p>'
        )
    else:
        items = "".join(
            f"<li>{f'<b>{e(arm)}</b> ' if arm else ''}{e(str(one))} <em>{e(one.remedy)}</em></li>"
            for arm, one in doubts
        )
        parts.append(
            f'<div class="stamp bad"><b>invalid</b> These numbers may not be used:<ul>{items}</ul></div>'
        )
    return "".join(parts)


def cards(summaries: Sequence[Summary], *, comparable: bool) -> str:
    """The figures that people look for first: the last arm's large, the first's beside it."""
    parts = []

    def card(label: str, kind: str, values: list[float | None], time: bool) -> str:
        return _card(label, kind, values, time, summaries[0]["arm"] if len(summaries) > 1 else "", comparable)

    last = summaries[-1]
    for group in ("reuse", "first"):
        if not any(s["groups"][group]["turns"] for s in summaries):
            continue
        name, _ = typical(last, group)
        far, limit = tail(last, group)
        more = f"{name}, {far} {words.seconds(limit)}" if limit is not None else name
        parts.append(
            card(
                f"TTFT, {group} turns",
                more,
                [s["groups"][group]["ttft_s"][name] for s in summaries],
                True,
            )
        )
    parts.append(card("total time", "", [s["total_s"] for s in summaries], True))
    parts.append(card("TPOT", "mean", [s["groups"]["all"]["tpot_s"]["mean"] for s in summaries], True))
    parts.append(card("output tokens/s", "", [s["rate"]["output_tokens_s"] for s in summaries], False))
    return f'<div class="cards">{"".join(parts)}</div>'


def _card(label: str, kind: str, values: list[float | None], time: bool, base: str, comparable: bool) -> str:
    show = words.seconds if time else words.number
    small = e(kind)
    if base:
        small = f"{e(base)}: {e(show(values[0]))}"
        gain = speedup(values[0], values[-1]) if time else speedup(values[-1], values[0])
        if gain is not None and comparable:
            tone = "good" if gain > 1.02 else "bad" if gain < 0.98 else "plain"
            small += f' <span class="{tone}">{e(words.factor(gain))}</span>'
    return f'<div class="card"><span>{e(label)}</span><strong>{e(show(values[-1]))}</strong><small>{small or "&nbsp;"}</small></div>'


STATISTICS = ("mean", "p50", "p90", "p95", "p99", "max")


def ttft_table(summaries: Sequence[Summary], *, comparable: bool) -> str:
    """TTFT: a block a class of turns, a line an arm."""
    several = len(summaries) > 1
    head = "".join(f"<th>{name}</th>" for name in ("turns", "errors", *STATISTICS)) + (
        "<th>speed-up</th>" if several and comparable else ""
    )
    parts = [f'<div class="scroll"><table><thead><tr><th>TTFT</th>{head}</tr></thead>']
    for group, title in GROUP_NAMES.items():
        if not any(s["groups"][group]["turns"] for s in summaries):
            continue
        base = summaries[0]["groups"][group]
        parts.append(
            f'<tbody><tr class="section"><th colspan="10">{e(title)}</th></tr>' if several else "<tbody>"
        )
        for number, summary in enumerate(summaries):
            found = summary["groups"][group]
            cells = [words.count(found["turns"]), words.count(found["errors"])]
            cells += [words.statistic(found, "ttft_s", name) for name in STATISTICS]
            if several and comparable:
                cells.append(
                    words.factor(speedup(base["ttft_s"]["mean"], found["ttft_s"]["mean"])) if number else ""
                )
            parts.append(
                f"<tr><th>{e(summary['arm'] if several else title)}</th>{''.join(f'<td>{e(cell)}</td>' for cell in cells)}</tr>"
            )
        parts.append("</tbody>")
    return "".join(parts) + "</table></div>"


def run_table(summaries: Sequence[Summary], *, comparable: bool) -> str:
    """Everything else in the common table: total time, TPOT, rates and tokens, arms side by side."""
    speedups = len(summaries) - 1 if comparable else 0
    names = [s["arm"] for s in summaries]
    heads = [
        *names,
        *(f"speed-up {name}" if len(names) > 2 else "speed-up" for name in names[1 : speedups + 1]),
    ]
    parts = [
        f'<div class="scroll"><table><thead><tr><th></th>{"".join(f"<th>{e(head)}</th>" for head in heads)}</tr></thead><tbody>'
    ]
    for row in rows(list(summaries)):
        if row.section.startswith("TTFT"):
            continue
        label = row.label if row.section in ("run", "rate", "turns") else f"{row.section}: {row.label}"
        cells = "".join(f"<td>{e(cell)}</td>" for cell in (*row.cells, *row.speedups[:speedups]))
        parts.append(f"<tr><th>{e(label)}</th>{cells}</tr>")
    return "".join(parts) + "</tbody></table></div>"


def lateness(runs: Sequence[Measured]) -> str:
    """Why turns started after their intended time, on average over all turns; empty where they did not."""
    parts = []
    for run in runs:
        turns, scale = run.turns, run.scale / 1e9
        if not len(turns):
            continue
        late, cap, own = (
            (column.mean() * scale)
            for column in (turns.send_ns - turns.intended_ns, turns.cap_wait_ns, turns.client_delay_ns)
        )
        if late > 0.01:
            parts.append(
                f"{run.info.arm}: turns left {words.seconds(float(late))} after their intended start on average, of which "
                f"{words.seconds(float(cap))} waiting for one of the turns in flight and {words.seconds(float(own))} by the client's own lateness"
            )
    return f'<p class="note">{e("; ".join(parts))}.</p>' if parts else ""


def bars(lines: Sequence[tuple[str, Sequence[tuple[str, float, str]]]], *, common: bool) -> str:
    """Stacked bars: (label, [(part's name, size, text)]). `common`: one scale for all, else each fills its line."""
    largest = max((sum(size for _, size, _ in parts) for _, parts in lines), default=0.0)
    drawn = []
    for label, parts in lines:
        whole = largest if common else sum(size for _, size, _ in parts)
        pieces = "".join(
            f'<i class="part-{_slug(name)}" style="width:{100 * size / whole:.3f}%" title="{e(name)}: {e(text)}"><span>{e(text)}</span></i>'
            for name, size, text in parts
            if whole and size > 0
        )
        drawn.append(f'<div class="bar"><b>{e(label)}</b><div>{pieces}</div></div>')
    names = dict.fromkeys(name for _, parts in lines for name, size, _ in parts if size > 0)
    key = "".join(f'<span><i class="part-{_slug(name)}"></i>{e(name)}</span>' for name in names)
    return f'<div class="bars">{"".join(drawn)}</div><p class="key">{key}</p>'


def _slug(name: str) -> str:
    return "".join(character if character.isalnum() else "-" for character in name)


def tiers(runs: Sequence[Measured], summaries: Sequence[Summary]) -> str:
    """Prompt tokens by source: of the sourced turns, by the server's counters where these say more, and the expected reuse."""
    lines = []
    for run, summary in zip(runs, summaries, strict=True):
        arm = summary["arm"]
        lines.append((arm, _sources(summary["tiers"])))
        if summary["tiers"]["unknown"] and (whole := counted(run)) is not None:
            lines.append((f"{arm}, server's counters", _sources(msgspec.to_builtins(whole))))
        expected, prompt = (
            summary["groups"]["all"]["expected_reuse"],
            summary["groups"]["all"]["prompt_tokens"],
        )
        if expected is not None and prompt:
            parts = (("never sent before", prompt - expected), ("expected reuse", expected))
            lines.append(
                (
                    f"{arm}, expected",
                    [(name, float(size), words.percent(size, prompt)) for name, size in parts],
                )
            )
    known = ", ".join(
        f"{s['arm']}: {words.percent(sum(s['tiers'].values()) - s['tiers']['unknown'], sum(s['tiers'].values()))}"
        for s in summaries
    )
    return (
        bars(lines, common=False)
        + f'<p class="note">Tokens whose source is known turn by turn: {e(known)}.</p>'
    )


def _sources(tokens: dict[str, float]) -> list[tuple[str, float, str]]:
    whole = sum(tokens.values())
    return [(label, float(tokens[tier]), words.percent(tokens[tier], whole)) for tier, label in TIERS]


def explanation(explained: Sequence[Why]) -> str:
    """Mean TTFT of the explained turns, split, each above its floor; then what the split rests on."""
    lines = []
    for one in explained:
        for group, parts in one.explanation.groups.items():
            for label, names in ((f"{one.arm}, {group}", PARTS), (f"{one.arm}, {group}: floor", FLOORS)):
                if means := times(parts, names):
                    lines.append((label, [(name, mean, words.seconds(mean)) for name, mean in means]))
    return bars(lines, common=True) + f'<p class="note">{e("; ".join(notes(explained)))}.</p>'


def worth(explained: Sequence[Why]) -> str:
    """What the external tier saved and moved, put on an hour or a day of the same load."""
    cards = [
        f'<div class="card"><span>{e(arm)}: {label}</span><strong>{words.number(value)}</strong><small>{unit}</small></div>'
        for arm, label, value, unit in worths(explained)
    ]
    note = "; ".join(
        f"{one.arm}: from {one.worth.sourced_turns} of {one.worth.turns} turns"
        for one in explained
        if one.worth
    )
    return (
        f'<div class="cards">{"".join(cards)}</div><p class="note">If the load went on like this; {e(note)}.</p>'
        if cards
        else ""
    )


def forest(found: Comparison) -> str:
    """Every figure's ratio with its interval, on one logarithmic axis."""
    findings = [*([found.primary] if found.primary else []), *found.others]
    ends = [value for one in findings for value in (one.difference.ratio, *(one.interval or ()))]
    reach = max((abs(math.log(value)) for value in ends if value > 0), default=0.0) or 0.05
    reach = max(reach, math.log1p(found.tolerance)) * 1.15

    def place(ratio: float) -> float:
        return 50 + 50 * math.log(ratio) / reach

    lines = []
    for number, one in enumerate(findings):
        low, high = one.interval or (one.difference.ratio, one.difference.ratio)
        lines.append(
            f'<tr class="{"primary" if number == 0 and found.primary else ""}"><th>{e(one.label)}</th>{_cells(one)}<td class="plot">'
            f'<i class="band" style="left:{place(1 / (1 + found.tolerance)):.2f}%;width:{place(1 + found.tolerance) - place(1 / (1 + found.tolerance)):.2f}%"></i>'
            f'<i class="one"></i><i class="range" style="left:{place(low):.2f}%;width:{max(place(high) - place(low), 0.4):.2f}%"></i>'
            f'<i class="dot" style="left:{place(one.difference.ratio):.2f}%"></i></td></tr>'
        )
    heads = "".join(
        f"<th>{e(name)}</th>" for name in ("", found.baseline, found.candidate, "ratio", "95 % interval", "p")
    )
    note = f"Ratio of {found.candidate} to {found.baseline}, logarithmic; the band is the tolerance of {words.share(found.tolerance)}. The first line decides, the others describe (p adjusted by Holm)."
    if found.noise:
        note += f" Run-to-run noise {words.share(found.noise.sd)}, at most {words.share(found.noise.upper)} ({found.noise.df} degrees of freedom)."
    if found.tpot:
        note += f" {found.tpot}"
    servers = "".join(f"<li>{e(line)}</li>" for line in found.servers)
    return (
        f'<div class="scroll"><table class="forest"><thead><tr>{heads}<th class="plot">{words.number(math.exp(-reach))}× … 1 … {words.number(math.exp(reach))}×</th></tr></thead>'
        f'<tbody>{"".join(lines)}</tbody></table></div><p class="note">{e(note)}</p>'
        + (f'<p class="note">The servers differ in:</p><ul class="note">{servers}</ul>' if servers else "")
    )


def _cells(finding: Finding) -> str:
    return "".join(f"<td>{e(cell)}</td>" for cell in finding_cells(finding))


def errors(run: Measured) -> str:
    """Failed turns by class and message, most frequent first."""
    lines = "".join(
        f"<tr><td>{count:,}</td><th>{e(kind)}</th><th>{e(message)}</th></tr>"
        for (kind, message), count in run.turns.messages.most_common(20)
    )
    return f'<h3>{e(run.info.arm)}</h3><table class="wrap"><tbody>{lines}</tbody></table>' if lines else ""


def repeat(run: Measured) -> str:
    """Everything needed to repeat the run, from run.json."""
    info = run.info
    facts: dict[str, Any] = {
        "run": info.run, "created": info.created, "arguments": " ".join(info.arguments), "workload": info.workload,
        "schedule": info.schedule, "policy": info.policy, "seed": info.seed, "endpoint": info.endpoint.url,
        "model": info.endpoint.model, "API": info.endpoint.api, "context limit": info.endpoint.max_model_len,
        "server": info.endpoint.server, "template": info.template, "versions": info.versions, "machine": info.machine,
        "notes": "\n".join(info.notes), "protocol": info.protocol,
    }  # fmt: skip
    lines = "".join(
        f"<dt>{e(name)}</dt><dd>{e(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))}</dd>"
        for name, value in facts.items()
        if value not in ({}, [], "", None)
    )
    return f"<h3>{e(info.arm)}</h3><dl>{lines}</dl>"
