"""The engine on the wall clock: steps start and end at absolute times, and what comes late is counted.

Simulated seconds = wall seconds x time scale. A step's outcome is known when it starts and told when it ends, so
the server's own work never adds to the simulated time unless it takes longer than that time.
"""

from __future__ import annotations

import asyncio
import os
import time
from typing import Protocol

from loadgen.sim.alarm import Alarm
from loadgen.sim.engine import Engine
from loadgen.sim.request import Request, Step

LATE_S = 0.002
"""Wall seconds behind its deadline from which a token counts as late."""


class Owner(Protocol):
    """Whoever waits for a request's tokens; `Request.owner` in the HTTP server."""

    def admitted(self, request: Request) -> None:
        """It is being computed from now on; where its prompt came from is known."""
        ...

    def ready(self, request: Request) -> tuple[int, bytes] | None:
        """File and bytes of the token that is due next, if they can be written without asking anybody."""
        ...

    def token(self, request: Request, written: int) -> None:
        """The token is due; `written` bytes of what `ready` gave are with the kernel, -1 if the write failed."""
        ...

    def prepare(self, request: Request) -> None:
        """Make ready what the token after this one will need; nobody waits for it."""
        ...

    def finished(self, request: Request) -> None: ...
    def failed(self, request: Request) -> None: ...


class Observer(Protocol):
    """Sees every step after it was delivered, with the wall seconds by which each token was late."""

    def stepped(self, step: Step, late_s: list[float]) -> None: ...


class Driver:
    """Callbacks instead of a task: at 20 times real time a decode step lasts 0.7 ms."""

    def __init__(self, engine: Engine, scale: float, observer: Observer) -> None:
        self.engine = engine
        self.scale = scale
        self._observer = observer
        self._started = time.monotonic()
        self._pending: Step | None = None
        self._outbox: list[tuple[Request, tuple[int, bytes] | None]] = []
        self._alarm: Alarm | None = None
        self._broken: asyncio.Future[None] | None = None

    def now_s(self) -> float:
        """Simulated time now."""
        return (time.monotonic() - self._started) * self.scale

    def submit(self, request: Request) -> None:
        self.engine.submit(request)
        if self._pending is None:
            self._advance()

    async def run(self) -> None:
        """Drive until cancelled; raises what broke the engine."""
        self._broken = asyncio.get_running_loop().create_future()
        self._alarm = Alarm(self._advance)
        try:
            self._advance()
            await self._broken
        finally:
            self._alarm.close()
            self._alarm = None

    def _advance(self) -> None:
        """Deliver the step that is due, start the next one, and set the alarm for what comes then."""
        if self._alarm is None or self._broken is None or self._broken.done():
            return
        try:
            at = self._turn()
        except Exception as error:  # noqa: BLE001 - handed to whoever awaits run()
            self._broken.set_exception(error)
            return
        if at is not None:
            # Behind time, the alarm rings at once, after whatever else the event loop has to do.
            self._alarm.set(self._started + at / self.scale)

    def _turn(self) -> float | None:
        """Simulated time of the next thing to do; none while idle."""
        if self._pending is not None:
            if self.now_s() < self._pending.end_s:
                return self._pending.end_s
            self._deliver(self._pending)
            self._pending = None
        start = self.engine.next_start_s()
        if start is None or self.now_s() < start:
            return start
        step = self._pending = self.engine.step()
        assert step is not None
        for request in step.admitted:
            request.owner.admitted(request)
        self._outbox = [(r, r.owner.ready(r)) for r in (*step.prefilled, *step.decoders)]
        return step.end_s

    def _deliver(self, step: Step) -> None:
        """Hand out a step. With 200 streams its writes stand in line, so nothing but writes happens in this loop."""
        due = self._started + step.end_s / self.scale
        now, write = time.monotonic, os.write
        sent: list[tuple[Request, int]] = []
        late: list[float] = []
        for request, prepared in self._outbox:
            if request.aborted:
                continue
            written = 0
            if prepared is not None:
                try:
                    written = write(*prepared)
                except BlockingIOError:
                    pass
                except OSError:
                    written = -1
            sent.append((request, written))
            late.append(now() - due)
        for request, written in sent:
            request.owner.token(request, written)
        for request in step.finished:
            request.owner.finished(request)
        for request in step.failed:
            request.owner.failed(request)
        self._observer.stepped(step, late)
        for request, _ in sent:
            request.owner.prepare(request)
