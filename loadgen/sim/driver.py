"""The engine on the wall clock: steps start and end at absolute times, and what comes late is counted.

Simulated seconds = wall seconds x time scale. A step's outcome is known when it starts and told when it ends, so
the server's own work never adds to the simulated time unless it takes longer than that time.
"""

from __future__ import annotations

import asyncio
import time
from typing import Protocol

from loadgen.sim.engine import Engine, Request, Step

LATE_S = 0.002
"""Wall seconds behind its deadline from which a token counts as late."""


class Owner(Protocol):
    """Whoever waits for a request's tokens; `Request.owner` in the HTTP server."""

    def admitted(self, request: Request) -> None: ...
    def token(self, request: Request, due_s: float) -> None: ...
    def finished(self, request: Request) -> None: ...


class Observer(Protocol):
    """Sees every step after it was delivered, with the wall time by which it was late."""

    def stepped(self, step: Step, late_s: float) -> None: ...


class Driver:
    def __init__(self, engine: Engine, scale: float, observer: Observer) -> None:
        self.engine = engine
        self.scale = scale
        self._observer = observer
        self._started = time.monotonic()
        self._woken = asyncio.Event()

    def now_s(self) -> float:
        """Simulated time now."""
        return (time.monotonic() - self._started) * self.scale

    def submit(self, request: Request) -> None:
        self.engine.submit(request)
        self._woken.set()

    async def run(self) -> None:
        """Drive until cancelled."""
        engine = self.engine
        while True:
            self._woken.clear()
            start = engine.next_start_s()
            if start is None:
                await self._woken.wait()
                continue
            delay = self._wall_until(start)
            if delay > 0:
                try:  # a request that is ready earlier may come meanwhile
                    await asyncio.wait_for(self._woken.wait(), delay)
                except TimeoutError:
                    pass
                continue
            step = engine.step()
            assert step is not None
            for request in step.admitted:
                request.owner.admitted(request)  # type: ignore[attr-defined]
            delay = self._wall_until(step.end_s)
            await asyncio.sleep(max(0.0, delay))
            self._deliver(step)

    def _deliver(self, step: Step) -> None:
        due = step.end_s
        for request in step.prefilled:
            if not request.aborted:
                request.owner.token(request, due)  # type: ignore[attr-defined]
        for request in step.decoders:
            if not request.aborted:
                request.owner.token(request, due)  # type: ignore[attr-defined]
        for request in step.finished:
            request.owner.finished(request)  # type: ignore[attr-defined]
        self._observer.stepped(step, -self._wall_until(due))

    def _wall_until(self, at_s: float) -> float:
        return self._started + at_s / self.scale - time.monotonic()
