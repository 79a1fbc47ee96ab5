"""What of a sweep's prompts should still be in HBM, beside what was."""

from __future__ import annotations

from loadgen.report.sides import Side
from loadgen.sizing.plan import round_robin_share


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
