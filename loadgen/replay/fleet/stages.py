"""Stages: another number of live sessions from one moment to the next, through Locust's LoadTestShape.

A shape makes Locust ignore `-u`, so one is registered only where stages are asked for.
"""

from __future__ import annotations

import re
from typing import Any

from locust import LoadTestShape

from loadgen.errors import InputError
from loadgen.replay.fleet import spawning

Stage = tuple[int, float]
"""(live sessions, endpoint seconds)"""


def parse(text: str) -> list[Stage]:
    """`4:60,8:60`: 4 live sessions for 60 s, then 8 for 60 s. Raises InputError."""
    stages: list[Stage] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*(\d+)\s*:\s*(\d+(?:\.\d+)?)\s*", part)
        if found is None or int(found[1]) < 1 or float(found[2]) <= 0:
            raise InputError(f"--stages {text!r} is not of the form SESSIONS:SECONDS,…, such as 4:60,8:60")
        stages.append((int(found[1]), float(found[2])))
    return stages


class Stages(LoadTestShape):
    """Live sessions by the time since the start; ends the run after the last stage."""

    def __init__(self, stages: list[Stage], time_scale: float) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._stages, self._scale = stages, time_scale

    def tick(self) -> tuple[int, float] | None:
        now: float = self.get_run_time() * self._scale  # type: ignore[no-untyped-call]
        for sessions, seconds in self._stages:
            if now < seconds:
                return sessions, spawning.rate(sessions)
            now -= seconds
        return None

    @property
    def most(self) -> int:
        return max(sessions for sessions, _ in self._stages)


def install(environment: Any, text: str, time_scale: float) -> Stages:
    """Make the shape Locust's own for this environment."""
    shape = Stages(parse(text), time_scale)
    shape.runner = environment.runner
    environment.shape_class = shape
    return shape
