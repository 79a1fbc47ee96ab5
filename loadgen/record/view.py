"""What a person sees of a recording: a live table, and the summary at its end."""

from __future__ import annotations

from typing import Any

from rich.console import Group
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from loadgen.record.figures import Figures

SHOWN_SESSIONS = 15


def live(figures: Figures, size: int) -> Group:
    """The sessions that moved last, under one line of totals."""
    table = Table(box=None, pad_edge=False)
    for name in ("session", "agent", "model"):
        table.add_column(name)
    for name in ("turns", "prompt tokens", "output", "TTFT s", "last at s"):
        table.add_column(name, justify="right")
    recent = sorted(figures.sessions.values(), key=lambda session: -session.last_s)
    for session in recent[:SHOWN_SESSIONS]:
        table.add_row(
            session.id,
            session.agent,
            escape(_plain(session.model)),
            str(session.turns),
            f"{session.prompt_tokens:,}",
            f"{session.output_tokens:,}",
            "-" if session.ttft_s is None else f"{session.ttft_s:.3f}",
            f"{session.last_s:.1f}",
        )
    more = len(recent) - SHOWN_SESSIONS
    rest = [Text(f"… and {more} earlier sessions", style="dim")] if more > 0 else []
    return Group(Text(totals(figures, size)), table, *rest)


def totals(figures: Figures, size: int) -> str:
    """One line: sessions, turns, tokens, the perfect cache's share, size, and whatever went wrong."""
    share = figures.hit_share
    parts = [
        f"{len(figures.sessions)} sessions",
        f"{figures.turns} turns",
        f"{figures.calls} calls",
        f"{figures.prompt_tokens:,} prompt tokens",
        f"{'-' if share is None else f'{100 * share:.1f} %'} hit by a perfect cache",
        f"{size / 1e6:.1f} MB",
    ]
    for count, what in (
        (figures.aborted, "aborted"),
        (figures.failed, "failed"),
        (figures.unread, "not understood"),
        (figures.lost, "unrecorded"),
    ):
        if count:
            parts.append(f"{count} {what}")
    return " · ".join(parts)


def as_json(figures: Figures, size: int, redacted: int) -> dict[str, Any]:
    """The same for machines."""
    return {
        "sessions": len(figures.sessions),
        "turns": figures.turns,
        "calls": figures.calls,
        "prompt_tokens": figures.prompt_tokens,
        "output_tokens": figures.output_tokens,
        "ideal_hit_share": figures.hit_share,
        "aborted": figures.aborted,
        "failed": figures.failed,
        "not_understood": figures.unread,
        "unrecorded": figures.lost,
        "secrets_replaced": redacted,
        "tags": dict(figures.tags),
        "bytes": size,
    }


def _plain(text: str) -> str:
    """A name from a request, without control characters that a terminal would obey."""
    return "".join(char if char.isprintable() else "?" for char in text)[:40]
