"""A schedule: sessions arrive at a rate that rises in a straight line, a morning in fast motion.

The rate at time t is a + (b - a) t / T for 0 <= t <= T, so the expected number of arrivals until t is
A(t) = a t + (b - a) t^2 / (2 T). A Poisson process of unit rate, mapped through the inverse of A, has that rate
(Cinlar, "Introduction to Stochastic Processes", 1975, section 4.7).

To ship it: add "ramp" to SCHEDULES and its flags (`only=("ramp",)`) in `replay/options.py`, and one branch each in
`describe` and `plan_arrivals` of `replay/schedule.py`. Allocator, lanes and caps take arrivals as they come.
"""

from __future__ import annotations

import math

import numpy as np

from loadgen.replay.job import Job


def plan(job: Job, *, first_rate: float, last_rate: float, over_s: float, seed: int) -> None:
    """Set `arrival_s` (endpoint seconds) of every session that starts by itself. Rates are sessions a second; after
    `over_s` seconds the last rate stays."""
    generator = np.random.default_rng([seed, 0x0B])
    roots = [session for session in job.sessions if not session.child]
    for session, events in zip(roots, np.cumsum(generator.exponential(size=len(roots))), strict=True):
        session.arrival_s = when(float(events), first_rate, last_rate, over_s)


def when(events: float, first_rate: float, last_rate: float, over_s: float) -> float:
    """The time (s) until which so many arrivals are expected: the inverse of A."""
    in_ramp = (first_rate + last_rate) / 2 * over_s
    if events > in_ramp:
        return over_s + (events - in_ramp) / last_rate
    slope = (last_rate - first_rate) / over_s
    if abs(slope) < 1e-12:
        return events / first_rate
    return (math.sqrt(first_rate**2 + 2 * slope * events) - first_rate) / slope
