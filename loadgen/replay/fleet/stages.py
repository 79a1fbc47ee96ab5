"""Stages: another number of live sessions from one moment to the next, through Locust's LoadTestShape.

A shape makes Locust ignore `-u`, so one is registered only where stages are asked for.
"""

from __future__ import annotations

from typing import Any

from locust import LoadTestShape

from loadgen.replay.fleet import spawning
from loadgen.replay.live import Stage, parse_stages


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
    shape = Stages(parse_stages(text), time_scale)
    shape.runner = environment.runner
    environment.shape_class = shape
    return shape
