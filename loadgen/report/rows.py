"""The rows of the table that puts arms side by side; the terminal, Markdown and HTML draw the same ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from loadgen.report import words

Summary = dict[str, Any]


class Row(NamedTuple):
    """One line: what it is, a cell for each arm, and the speed-up of each later arm over the first ("" where it means nothing)."""

    label: str
    cells: list[str]
    speedups: list[str]
    section: str


def rows(summaries: list[Summary]) -> Iterator[Row]:
    """All rows of the table, in reading order."""
    yield _row("total time", "run", summaries, lambda s: words.seconds(s["total_s"]), lambda s: s["total_s"])
    for group in ("all", "first", "reuse", "rebuilt", "retry"):
        if not any(s["groups"].get(group, {}).get("turns") for s in summaries):
            continue
        title = {
            "all": "all turns",
            "first": "first turns",
            "reuse": "reuse turns",
            "rebuilt": "rebuilt turns",
            "retry": "retries",
        }[group]
        section = f"TTFT, {title}"
        for name in ("mean", "p50", "p90", *(["p99"] if _supported(summaries, group, "p99") else []), "max"):
            yield _row(name, section, summaries, _statistic(group, name), _ttft(group, name))
    if any(_waited(s) for s in summaries):
        for name in ("mean", "p90", "max"):
            yield _row(
                name,
                "TTFT from intended",
                summaries,
                _statistic("all", name, "ttft_intended_s"),
            )
    yield _row(
        "mean",
        "TPOT",
        summaries,
        lambda s: words.statistic(s["groups"]["all"], "tpot_s", "mean"),
        lambda s: s["groups"]["all"]["tpot_s"]["mean"],
    )
    yield _row("output tokens/s", "rate", summaries, lambda s: words.number(s["rate"]["output_tokens_s"]))
    yield from _steady(summaries)
    yield from _tokens(summaries)
    yield _row(
        "job time, mean", "sessions", summaries, lambda s: words.seconds(s["sessions"]["job_s"]["mean"])
    )
    if any(s["sessions"]["stall_share"] is not None for s in summaries):
        yield _row("stalled on TTFT", "sessions", summaries, lambda s: _percent(s["sessions"]["stall_share"]))
    yield _row("turns", "turns", summaries, lambda s: words.count(s["groups"]["all"]["turns"]))
    yield _row("errors", "turns", summaries, lambda s: words.count(s["groups"]["all"]["errors"]))
    if any(s["groups"]["all"].get("aborted") for s in summaries):
        yield _row(
            "cut on purpose", "turns", summaries, lambda s: words.count(s["groups"]["all"].get("aborted"))
        )
    yield _row("validity", "turns", summaries, lambda s: "valid" if s["valid"] else "INVALID")


def _waited(summary: Summary) -> bool:
    """Whether turns started so late that TTFT from the intended start is another figure."""
    groups = summary["groups"]["all"]
    for name in ("mean", "p50"):
        sent, intended = groups["ttft_s"][name], groups["ttft_intended_s"][name]
        if sent and intended:
            return bool(intended > 1.01 * sent)
    return False


def _steady(summaries: list[Summary]) -> Iterator[Row]:
    """Rates while all lanes of a closed schedule had a session."""
    if not any(s.get("steady") for s in summaries):
        return
    yield _row("output tokens/s", "steady", summaries, _steady_rate("output_tokens_s"))
    yield _row("turns/s", "steady", summaries, _steady_rate("turns_s"))
    yield _row("window", "steady", summaries, _steady_window)


def _steady_rate(name: str) -> Callable[[Summary], str]:
    return lambda s: words.number((s.get("steady") or {}).get(name))


def _steady_window(summary: Summary) -> str:
    begin, end = ((summary.get("steady") or {}).get(name) for name in ("from_s", "to_s"))
    return words.DASH if begin is None or end is None else f"{words.number(begin)} to {words.number(end)} s"


def _tokens(summaries: list[Summary]) -> Iterator[Row]:
    for tier, label in (
        ("compute", "computed"),
        ("hbm", "from HBM"),
        ("external", "from external"),
        ("unknown", "source unknown"),
    ):
        if tier == "unknown" and not any(s["tiers"][tier] for s in summaries):
            continue
        yield _row(
            label,
            "prompt tokens",
            summaries,
            _tier(tier),
        )
    yield _row(
        "cached (usage)",
        "prompt tokens",
        summaries,
        lambda s: _share(s["groups"]["all"]["cached_tokens"], s["groups"]["all"]["prompt_tokens"]),
    )
    yield _row(
        "expected reuse",
        "prompt tokens",
        summaries,
        lambda s: _share(s["groups"]["all"]["expected_reuse"], s["groups"]["all"]["prompt_tokens"]),
    )


def _tier(name: str) -> Callable[[Summary], str]:
    """Tokens of one tier. Where every token's source is unknown, none is known to be 0."""

    def cell(s: Summary) -> str:
        tiers = s["tiers"]
        known = tiers["compute"] + tiers["hbm"] + tiers["external"]
        return _share(tiers[name] if known or name == "unknown" else None, sum(tiers.values()))

    return cell


def _percent(share: float | None) -> str:
    return words.DASH if share is None else words.percent(share, 1.0)


def _share(part: float | None, whole: float | None) -> str:
    return words.DASH if part is None else f"{words.tokens(part)} ({words.percent(part, whole)})"


def _supported(summaries: list[Summary], group: str, name: str) -> bool:
    return any(s["groups"].get(group, {}).get("ttft_s", {}).get(name) is not None for s in summaries)


def _statistic(group: str, name: str, metric: str = "ttft_s") -> Callable[[Summary], str]:
    return lambda s: words.statistic(s["groups"][group], metric, name) if group in s["groups"] else words.DASH


def _ttft(group: str, name: str) -> Callable[[Summary], float | None]:
    def value(s: Summary) -> float | None:
        found = s["groups"].get(group)
        return None if found is None or (name == "max" and found["censored"]) else found["ttft_s"][name]

    return value


def _row(
    label: str,
    section: str,
    summaries: list[Summary],
    cell: Callable[[Summary], str],
    value: Callable[[Summary], float | None] | None = None,
) -> Row:
    speedups = [""] * (len(summaries) - 1)
    if value is not None:
        speedups = [words.factor(speedup(value(summaries[0]), value(other))) for other in summaries[1:]]
    return Row(label, [cell(s) for s in summaries], speedups, section)


def speedup(before: float | None, after: float | None) -> float | None:
    """How many times faster; None where either is not known."""
    return before / after if before is not None and after else None
