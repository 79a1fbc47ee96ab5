"""How often an SLO gate on one run is wrong when turns of a session are alike: `python benchmarks/statistics_slo.py`.

Log times are normal with a session effect (intraclass correlation `ICC`); the limit is put so that a known share of turns is
over it, and `report.statistics.exceedance` judges "p90 within the limit" (10 % allowed). At exactly 10 % both passing
and failing are errors. Prints a Markdown table; it stands in docs/statistics.md.
"""

from __future__ import annotations

import argparse
import math

import numpy as np
from scipy import stats

from loadgen.report.statistics import exceedance

ALLOWED = 0.10
SHAPES = ((10, 4), (40, 1), (20, 10), (60, 10), (10, 60))
ICCS = (0.0, 0.2, 0.5)


def rates(
    generator: np.random.Generator, sessions: int, turns: int, icc: float, over: float, count: int
) -> tuple[float, float]:
    """(passes, failures) per run when the true share over the limit is `over`."""
    session = np.repeat(np.arange(sessions), turns)
    limit = float(stats.norm.ppf(1 - over))
    passed = failed = 0
    for _ in range(count):
        shared = math.sqrt(icc) * generator.normal(size=sessions)[session]
        time = shared + math.sqrt(1 - icc) * generator.normal(size=session.size)
        found = exceedance(time > limit, session, time, limit)
        passed += found.high <= ALLOWED
        failed += found.low > ALLOWED
    return passed / count, failed / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--seed", type=int, default=20260616)
    args = parser.parse_args()
    generator = np.random.default_rng(args.seed)
    print(
        f"`p90 <= limit`, {args.runs:,} runs each: true share of turns over the limit 10 % (either answer is wrong), 2 % and 30 %\n"
    )
    print("| sessions x turns | ICC | at 10 %: pass | at 10 %: fail | at 2 %: pass | at 30 %: fail |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for sessions, turns in SHAPES:
        for icc in ICCS if turns > 1 else ICCS[:1]:
            edge = rates(generator, sessions, turns, icc, 0.10, args.runs)
            good = rates(generator, sessions, turns, icc, 0.02, args.runs)[0]
            bad = rates(generator, sessions, turns, icc, 0.30, args.runs)[1]
            print(
                f"| {sessions} x {turns} | {icc} | {edge[0]:.1%} | {edge[1]:.1%} | {good:.0%} | {bad:.0%} |"
            )


if __name__ == "__main__":
    main()
