"""What the server counted over a whole run, where it counted this run and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

from loadgen.measure.probes.server import ServerDelta, delta, tiers
from loadgen.measure.sample import Tiers
from loadgen.report.columns import ABSENT
from loadgen.report.explain import Page, read_pages
from loadgen.report.summary import Measured


def whole_change(run: Measured, pages: Sequence[Page]) -> ServerDelta | None:
    """The counters from the first to the last page of `server.jsonl`.

    None when there are no two pages, the server restarted, or its prompt tokens are not exactly the run's: then
    somebody else used it, or turns failed and were counted or not as the server pleased.
    """
    prompt = run.turns.prompt_tokens
    if len(pages) < 2 or not len(run.turns) or (prompt == ABSENT).any():
        return None
    change = delta(pages[0].counters, pages[-1].counters)
    return change if change.tokens("prompt_tokens") == int(prompt.sum()) else None


def counted(run: Measured) -> Tiers | None:
    """Where all prompt tokens of a run came from by the server's own counters; None as in `whole_change`."""
    change = whole_change(run, read_pages(run.folder))
    return None if change is None else tiers(change, int(run.turns.prompt_tokens.sum()), None)
