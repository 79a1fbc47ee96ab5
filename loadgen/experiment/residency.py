"""What of a sweep's prompts should still be in HBM, beside what was."""

from __future__ import annotations

import math

from loadgen.report.sides import Side


def round_robin_share(resident: float, sessions: int) -> float:
    """Share of a context that hits when `sessions` contexts take turns and `resident` of them fit.

    vLLM evicts the least recently used and frees a request's tail first: all hit up to floor(C), what the others
    leave of one context below C + 1, none beyond.
    """
    if sessions <= math.floor(resident):
        return 1.0
    return max(0.0, resident - (sessions - 1))


def hbm_shares(side: Side, capacity_tokens: int | None) -> tuple[float | None, float | None]:
    """(measured, predicted) share of the expected reuse that came from HBM in the side's runs.

    Measured needs turns with a known source; predicted needs a sweep of width 1 and the size of the pool.
    """
    hbm = reuse = 0
    unknown = False
    for summary in side.summaries:
        expected = summary["groups"]["reuse"]["expected_reuse"]
        unknown |= bool(summary["tiers"]["unknown"]) or not expected
        hbm, reuse = hbm + summary["tiers"]["hbm"], reuse + (expected or 0)
    measured = None if unknown or not reuse else hbm / reuse
    info, first = side.infos[0], side.summaries[0]["groups"]["all"]
    sweep = info.schedule.get("kind") == "sweep" and info.schedule.get("width") == 1
    if capacity_tokens is None or not sweep or not first["prompt_tokens"]:
        return measured, None
    resident = capacity_tokens / (first["prompt_tokens"] / first["turns"])
    return measured, round_robin_share(resident, info.plan.sessions)
