"""How often the gate cries wolf, and how often it finds a regression: `python benchmarks/statistics_gate.py`.

Experiments are simulated at run level (the mean TTFT of a run is log-normal around the arm's) and judged by the gate's
own rule, `report.statistics.is_larger`. Prints Markdown tables; they stand in docs/statistics.md.
"""

from __future__ import annotations

import argparse
import math
import platform
import time
from collections.abc import Iterator

import numpy as np
from scipy import stats

from loadgen.report.statistics import ALPHA, MIN_RUNS, Noise, difference, is_larger, smallest_effect

SDS = (0.01, 0.03, 0.10)
TOLERANCES = (0.0, 0.05)


def experiments(
    generator: np.random.Generator, sd: float, runs: int, effect: float, count: int
) -> Iterator[tuple[list[float], list[float]]]:
    """`count` pairs of run-level means: a baseline at 22 s and a candidate that takes 1 + effect times as long."""
    for _ in range(count):
        a = 22.0 * np.exp(generator.normal(0.0, sd, runs))
        b = 22.0 * np.exp(generator.normal(math.log1p(effect), sd, runs))
        yield a.tolist(), b.tolist()


def alarms(
    generator: np.random.Generator, sd: float, runs: int, effect: float, tolerance: float, count: int
) -> int:
    return sum(
        is_larger(difference(a, b), tolerance) for a, b in experiments(generator, sd, runs, effect, count)
    )


def stored_alarms(generator: np.random.Generator, sd: float, df: int, tolerance: float, count: int) -> int:
    """One run a side, judged with a variance that was itself estimated from `df` degrees of freedom."""
    found = 0
    for a, b in experiments(generator, sd, 1, 0.0, count):
        stored = Noise(sd * math.sqrt(generator.chisquare(df) / df), df)
        found += is_larger(difference(a, b, stored), tolerance)
    return found


def bound(hits: int, count: int) -> float:
    """Upper 95 % bound of a rate (Clopper and Pearson)."""
    return float(stats.beta.ppf(0.95, hits + 1, count - hits)) if hits < count else 1.0


def on_turns(generator: np.random.Generator, sd: float, count: int) -> float:
    """What a test on turns would do: one run an arm, 40 turns each with 5 % of noise, no real change."""
    found = 0
    for _ in range(count):
        a, b = (generator.normal(generator.normal(0.0, sd), 0.05, 40) for _ in range(2))
        found += stats.ttest_ind(b, a, equal_var=False, alternative="greater").pvalue < ALPHA
    return found / count


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--experiments", type=int, default=5000)
    parser.add_argument("--seed", type=int, default=20260616)
    args = parser.parse_args()
    count, generator = args.experiments, np.random.default_rng(args.seed)
    began = time.process_time()

    print(f"False alarms: {count:,} A/A experiments each\n")
    print("| run-to-run SD | tolerance | runs a side | false alarms | upper 95 % bound |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    worst = 0.0
    for sd in SDS:
        for tolerance in TOLERANCES:
            for runs in (MIN_RUNS, 10):
                hits = alarms(generator, sd, runs, 0.0, tolerance, count)
                worst = max(worst, bound(hits, count))
                print(
                    f"| {sd:.0%} | {tolerance:.0%} | {runs} | {hits / count:.2%} | {bound(hits, count):.2%} |"
                )
            hits = stored_alarms(generator, sd, 8, tolerance, count)
            worst = max(worst, bound(hits, count))
            print(
                f"| {sd:.0%} | {tolerance:.0%} | 1, stored variance (8 df) | {hits / count:.2%} | {bound(hits, count):.2%} |"
            )

    print("\nPower at a run-to-run SD of 3 %\n")
    print("| regression | runs a side | tolerance | found | smallest effect at 90 %, computed |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    for effect, runs in ((0.15, 5), (0.10, 10), (0.10, 5), (0.05, 10)):
        for tolerance in TOLERANCES:
            found = alarms(generator, 0.03, runs, effect, tolerance, count) / count
            smallest = smallest_effect(0.03 * math.sqrt(2 / runs), 2 * runs - 2, tolerance)
            print(f"| {effect:.0%} | {runs} | {tolerance:.0%} | {found:.1%} | {smallest:.1%} |")

    print(f"\nA test on turns instead (40 against 40, no change, {count:,} times):", end=" ")
    print(", ".join(f"SD {sd:.0%}: {on_turns(generator, sd, count):.0%} false alarms" for sd in SDS))
    print(
        f"\nWorst upper bound of a false-alarm rate: {worst:.2%}; seed {args.seed}, {time.process_time() - began:.0f} CPU s,",
        end=" ",
    )
    print(f"Python {platform.python_version()}, {platform.machine()}")


if __name__ == "__main__":
    main()
