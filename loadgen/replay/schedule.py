"""Schedules: what `--schedule` means, and when sessions arrive.

sweep   all first turns in order, barrier, all second turns, …; `width` turns in flight
closed  N live sessions (Locust's users); the next session of the trace starts when one ends
open    sessions arrive at a rate, Poisson or gamma
timed   sessions start when the trace says, with speed-up

Later turns of closed, open and timed start at the end of the previous turn plus its gap. All times here are endpoint
seconds.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from loadgen.errors import InputError
from loadgen.measure.sample import TurnClass
from loadgen.replay.job import Job
from loadgen.replay.options import Options
from loadgen.trace.reader import TraceFile


def describe(options: Options) -> dict[str, Any]:
    """The schedule and its parameters as applied, for `run.json` and the report."""
    common = {"kind": options.schedule}
    if options.schedule == "sweep":
        return {**common, "width": options.width}
    gaps = {
        "gap_scale": options.gap_scale,
        "tool_gap_cap_s": options.tool_gap_cap,
        "human_gap_cap_s": options.human_gap_cap,
    }
    own: dict[str, dict[str, Any]] = {
        "closed": {"stagger_s": options.stagger, "mid_start": options.mid_start, "stages": options.stages},
        "open": {"rate_per_s": options.rate, "burstiness": options.burstiness},
        "timed": {"speed": options.speed, "jitter_s": options.jitter},
    }
    return {**common, **own[options.schedule], **gaps, "in_flight": options.in_flight}


def isolates(options: Options) -> bool:
    """Whether turns are alone in flight by construction, so that counters around a turn are the turn's own."""
    return options.schedule == "sweep" and options.width == 1


def plan_arrivals(options: Options, job: Job, trace: TraceFile) -> None:
    """Set `arrival_s` of every session that starts by itself. Raises InputError when the trace has no usable times."""
    roots = [session for session in job.sessions if not (session.child or session.warmup)]
    if options.schedule == "open":
        # Gamma gaps with shape k and mean 1/rate have the coefficient of variation 1/sqrt(k); k = 1 is Poisson.
        assert options.rate is not None  # options.check demands it
        generator = np.random.default_rng([options.seed, 0x0A])
        shape = options.burstiness
        gaps = generator.gamma(shape, 1.0 / (shape * options.rate), len(roots))
        for session, arrival in zip(roots, np.cumsum(gaps) - gaps[0], strict=True):
            session.arrival_s = float(arrival)
    elif options.schedule == "timed":
        starts = {session.id: session.start_s for session in trace.sessions}
        if len(roots) > 1 and len({starts[s.record] for s in roots}) == 1:
            raise InputError(f"{trace.path} has no session start times; use --schedule closed or open")
        first = min(starts[s.record] for s in roots)
        spread = random.Random(options.seed)
        for session in roots:
            session.arrival_s = (
                starts[session.record] - first + spread.uniform(0.0, options.jitter)
            ) / options.speed
        roots.sort(key=lambda session: session.arrival_s)
        others = [session for session in job.sessions if session.child or session.warmup]
        job.sessions[:] = sorted(others, key=lambda session: session.child) + roots
    elif options.schedule == "closed" and options.stagger:
        for number, session in enumerate(roots):
            session.arrival_s = number * options.stagger


def start_in_middle(job: Job, lanes: int) -> None:
    """Let the first `lanes` sessions be met at a turn drawn by the job's seed, as in a fleet that is under way: what came
    before is in the prompt, and the first turn that is sent finds nothing of it."""
    generator = random.Random(job.seed)
    roots = [session for session in job.sessions if not (session.child or session.warmup)]
    for session in roots[:lanes]:
        skip = generator.randrange(len(session.turns))
        if skip:
            session.lead += skip
            session.turns = session.turns[skip:]
            session.turns[0].klass = TurnClass.FIRST
            if session.turns[0].expected_reuse is not None:
                session.turns[0].expected_reuse = job.floor
