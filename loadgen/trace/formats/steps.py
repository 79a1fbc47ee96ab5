"""A list of messages in time order → calls: every assistant message is one, its prompt is all before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from loadgen.trace.formats.base import Call
from loadgen.trace.model import Message

Fill = Callable[[Call, Any], None]


def calls_of(steps: Iterable[tuple[list[Message], Any]], fill: Fill | None = None) -> list[Call]:
    """`steps`: the messages of one record and the record itself. `fill(call, record)` adds usage and times.

    Consecutive assistant messages are calls of their own. What comes before the first user message is kept.
    """
    prompt: list[Message] = []
    calls: list[Call] = []
    for messages, record in steps:
        for message in messages:
            if message["role"] == "assistant" and prompt:
                call = Call(prompt=list(prompt), answer=message)
                if fill is not None:
                    fill(call, record)
                calls.append(call)
            prompt.append(message)
    return calls
