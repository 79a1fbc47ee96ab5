"""Capacity: the largest number of live sessions, or rate of arrivals, that meets an SLO.

Doubling finds the first load that misses it, bisection the edge between. Every step is a run of its own under nonces of
its own, judged by the gate; a step that is invalid or inconclusive ends the search, since guessing on would not be
measuring.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loadgen.errors import EXIT_INTERRUPTED, InputError
from loadgen.replay import launch
from loadgen.replay.fleet.rundir import new_run_dir
from loadgen.replay.options import Options, to_arguments
from loadgen.replay.prepare import prepare
from loadgen.report.gate import gate
from loadgen.report.slo import Slo

FILE = "capacity.json"
Load = float
"""Live sessions (a whole number) or sessions that arrive an endpoint second."""


class Step(msgspec.Struct, kw_only=True):
    """One load that was tried. `outcome` is the gate's: pass, fail, invalid or inconclusive."""

    load: float
    outcome: str
    run: str
    why: str = ""


class Answer(msgspec.Struct, kw_only=True):
    """`best` is the largest load that passed, null when none did; `edge` the smallest that failed, null when none did.

    `complete`: the search ended by itself, not by a step that could not be judged.
    """

    kind: str  # sessions or rate
    best: float | None
    edge: float | None
    complete: bool
    steps: list[Step]


@dataclass(frozen=True)
class Search:
    """`low` is tried first; nothing above `high` is tried. For rates, the search ends when the edge is within `close`."""

    low: Load = 1
    high: Load = 64
    close: float = 0.1
    rate: bool = False

    def next(self, steps: list[Step]) -> Load | None:
        """The next load to try; None when the answer is known."""
        if not steps:
            return self.low
        if steps[-1].outcome not in ("pass", "fail"):
            return None
        best = max((step.load for step in steps if step.outcome == "pass"), default=None)
        edge = min((step.load for step in steps if step.outcome == "fail"), default=None)
        if edge is None:
            assert best is not None
            return None if best >= self.high else min(best * 2, self.high)
        if best is None:
            lower = edge / 2 if self.rate else edge // 2
            return None if lower < (self.low * self.close if self.rate else 1) else lower
        if self.rate:
            return None if edge <= best * (1 + self.close) else math.sqrt(best * edge)
        middle = (int(best) + int(edge)) // 2
        return None if middle == best else float(middle)


def answer(search: Search, steps: list[Step]) -> Answer:
    passed = [step.load for step in steps if step.outcome == "pass"]
    failed = [step.load for step in steps if step.outcome == "fail"]
    return Answer(
        kind="rate" if search.rate else "sessions",
        best=max(passed, default=None),
        edge=min(failed, default=None),
        complete=bool(steps) and steps[-1].outcome in ("pass", "fail"),
        steps=steps,
    )


def play(
    search: Search,
    options: Options,
    host: str,
    slo: Slo,
    *,
    run_time: str | None,
    said: Callable[[Step], None],
) -> tuple[Path, Answer, int]:
    """Search; returns the folder of all steps, the answer, and 130 when somebody interrupted it, else 0.

    Raises InputError when a step cannot be prepared.
    """
    wanted = "open" if search.rate else "closed"
    if options.schedule != wanted:
        raise InputError(f"a search over {'rates' if search.rate else 'sessions'} needs --schedule {wanted}")
    folder = new_run_dir(Path(options.out))
    steps: list[Step] = []
    code = 0
    while (load := search.next(steps)) is not None:
        run_dir = folder / f"{len(steps):02d}-{load:g}"
        mine = dataclasses.replace(
            options,
            experiment=folder.name,
            arm=f"{load:g}",
            rep=len(steps),
            run_dir=str(run_dir),
            rate=load if search.rate else None,
        )
        if not search.rate and options.sessions and options.copies == 1:
            # Every lane plays two sessions at least, so that the steady state is more than a start and an end.
            mine.copies = max(1, math.ceil(2 * load / options.sessions))
        fleet = launch.Fleet(users=None if search.rate else int(load), run_time=run_time)
        _, code = launch.play(prepare(mine, host), mine, fleet, to_arguments(mine))
        if code == EXIT_INTERRUPTED or not (run_dir / "summary.json").is_file():
            steps.append(Step(load=load, outcome="invalid", run=run_dir.name, why="the run broke off"))
            break
        verdict = gate([run_dir], slo)
        why = "; ".join(check.sentence for check in verdict.checks if check.outcome == verdict.outcome)
        steps.append(Step(load=load, outcome=verdict.outcome, run=run_dir.name, why=why[:300]))
        said(steps[-1])
    found = answer(search, steps)
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(found), indent=1))
    return folder, found, EXIT_INTERRUPTED if code == EXIT_INTERRUPTED else 0
