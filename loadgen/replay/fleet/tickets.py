"""Questions of a worker's greenlets to the master, each with a ticket that its answer names."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import gevent
from gevent.event import AsyncResult


class Tickets:
    """`send(kind, data)` takes a message to the master. Answers of kind `end` mean that the run is over."""

    def __init__(self, send: Callable[[str, dict[str, Any]], None]) -> None:
        self._send = send
        self._waiting: dict[str, AsyncResult] = {}
        self._withdrawn: dict[
            str, tuple[str, str]
        ] = {}  # ticket of a lane that is gone -> (what it asked for, run)
        self._last = 0

    def ask(self, kind: str, run: str, data: dict[str, Any] | None = None) -> dict[str, Any]:
        """Send a question and wait for the answer. A lane that is taken away while it waits gives back what it gets."""
        self._last += 1
        ticket = f"{os.getpid()}-{self._last}"
        result = self._waiting[ticket] = AsyncResult()
        try:
            self._send(kind, {**(data or {}), "ticket": ticket, "run": run})
            answer: dict[str, Any] = result.get()
        except gevent.GreenletExit:
            if kind in ("ask", "enter"):
                self._withdraw(kind, run, ticket, result)
            raise
        finally:
            del self._waiting[ticket]
        return answer

    def answered(self, data: dict[str, Any]) -> None:
        """The master's answer."""
        result = self._waiting.get(data["ticket"])
        if result is not None:
            result.set(data)
        else:
            self._give_back(data["ticket"], data)

    def end(self) -> None:
        """Nobody will answer any more."""
        for result in self._waiting.values():
            result.set({"kind": "end", "parked": False})
        self._withdrawn.clear()

    def _withdraw(self, kind: str, run: str, ticket: str, result: AsyncResult) -> None:
        self._withdrawn[ticket] = (kind, run)
        if result.ready():
            self._give_back(ticket, result.get())
        else:
            self._send("withdraw", {"run": run, "ticket": ticket})

    def _give_back(self, ticket: str, answer: dict[str, Any]) -> None:
        kind, run = self._withdrawn.pop(ticket, ("", ""))
        if not kind or answer.get("kind") == "end":
            return
        if kind == "enter":
            self._send("leave", {"run": run})
        else:
            self._send("give_back", {"run": run, "session": answer["session"]})
