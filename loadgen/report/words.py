"""How figures are written, the same in the terminal, in Markdown and in HTML."""

from __future__ import annotations

from typing import Any

from loadgen.report.figures import NEEDED

DASH = "–"


def printable(text: str) -> str:
    """Foreign text without control characters: a terminal obeys them, and XML has no place for them."""
    return "".join(character if character.isprintable() else " " for character in text)


def seconds(value: float | None) -> str:
    """Three significant digits with a unit: `6.62 s`, `14.5 ms`, `23 µs`."""
    if value is None:
        return DASH
    for unit, factor in (("s", 1.0), ("ms", 1e3), ("µs", 1e6)):
        scaled = value * factor
        if scaled >= 0.9995 or unit == "µs":
            return f"{number(scaled)} {unit}"
    raise AssertionError


def number(value: float | None) -> str:
    """Three significant digits, thousands separated, never in exponent form."""
    if value is None:
        return DASH
    size = abs(value)
    if size >= 99.95:
        return f"{value:,.0f}"
    return f"{value:.1f}" if size >= 9.995 else f"{value:.2f}"


def count(value: float | None) -> str:
    return DASH if value is None else f"{value:,.0f}"


def tokens(value: float) -> str:
    """Tokens in three significant digits: `5.61 M`, `140 k`, `128`."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size * 0.9995:
            return f"{number(value / size)} {unit}"
    return f"{value:.0f}"


def percent(part: float | None, whole: float | None) -> str:
    return DASH if part is None or not whole else f"{100 * part / whole:.1f} %"


def share(value: float) -> str:
    """A fraction as a percentage: `5 %`, `12.7 %`, `0.3 %`."""
    return f"{100 * value:.3g} %"


def factor(value: float | None) -> str:
    """A speed-up: `3.32×`."""
    return DASH if value is None else f"{number(value)}×"


def statistic(group: dict[str, Any], metric: str, name: str, n: int | None = None) -> str:
    """A mean, percentile or maximum of a group; what cannot be had says why: `n<29`, `> 12 s`, or a dash."""
    figures = group[metric]
    value, censored = figures[name], group["censored"]
    turns = group["turns"] if n is None else n
    if not turns:
        return DASH
    if name == "max" and censored and value is not None:
        return f"> {seconds(value)}"
    if value is not None:
        return seconds(value)
    if name in NEEDED and turns < NEEDED[name]:
        return f"n<{NEEDED[name]}"
    if name == "mean" or not censored or figures["max"] is None:
        return DASH  # a mean with a censored turn has no bound
    return f"> {seconds(figures['max'])}"
