"""Where all prompt tokens of a run came from by the server's own counters, where these count this run and nothing else."""

from __future__ import annotations

from loadgen.measure.probes.server import delta, tiers
from loadgen.measure.sample import Tiers
from loadgen.report.columns import ABSENT
from loadgen.report.explain import read_pages
from loadgen.report.summary import Measured


def counted(run: Measured) -> Tiers | None:
    """Tokens by source from the first to the last page of `server.jsonl`.

    None when there are no two pages, the server restarted, or its prompt tokens are not exactly the run's: then
    somebody else used it, or turns failed and were counted or not as the server pleased.
    """
    pages = read_pages(run.folder)
    prompt = run.turns.prompt_tokens
    if len(pages) < 2 or not len(run.turns) or (prompt == ABSENT).any():
        return None
    return tiers(delta(pages[0].counters, pages[-1].counters), int(prompt.sum()), None)
