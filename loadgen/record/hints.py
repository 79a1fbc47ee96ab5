"""What the words of messages tell: a summary begins, a task is handed on, somebody was waited for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple

import orjson

from loadgen.trace.model import Message

HUMAN_SECONDS = 1.0
"""Nobody types faster: a user message that came sooner was written by the agent (a tool's output as text)."""

_SUMMARY = re.compile(
    r"summar|continued from a previous|conversation so far|context (?:was )?(?:compact|checkpoint|condens)|handoff",
    re.IGNORECASE,
)
_SUMMARY_WITHIN = 600  # characters from the start of a text
_TASK_ARGUMENTS = ("prompt", "message", "task", "instructions", "input")
_SHORTEST_TASK = 8
_CONTAINED_TASK = 20  # a shorter text must be the whole message


class Task(NamedTuple):
    """A text in a tool call that may become a sub-agent's first message; `wait`: the caller waits for the result."""

    text: str
    call_id: str
    wait: bool


def spawned_tasks(answer: Message) -> Iterator[Task]:
    """Tasks that an answer's tool calls may hand on."""
    for call in answer.get("tool_calls", ()):
        function = call["function"]
        try:
            arguments = orjson.loads(function["arguments"])
        except orjson.JSONDecodeError:
            continue
        if not isinstance(arguments, dict):
            continue
        waits = not arguments.get("run_in_background") and "spawn" not in function["name"]
        for name in _TASK_ARGUMENTS:
            text = arguments.get(name)
            if isinstance(text, str) and len(text.strip()) >= _SHORTEST_TASK:
                yield Task(text.strip(), call["id"], waits)


def gives_task(messages: Iterable[Message], task: str) -> bool:
    """Whether a user message is this task, or holds it among reminders."""
    for message in messages:
        if message["role"] == "user":
            text = "\n".join(_texts(message))
            if text.strip() == task or (len(task) >= _CONTAINED_TASK and task in text):
                return True
    return False


def tells_summary(messages: Iterable[Message]) -> bool:
    """Whether a user message begins like the summary of an earlier conversation."""
    return any(
        _SUMMARY.search(text[:_SUMMARY_WITHIN])
        for message in messages
        if message["role"] == "user"
        for text in _texts(message)
    )


def gap_kind(messages: list[Message], seconds: float) -> Literal["tool", "human"]:
    """Who was waited for before a prompt: a tool when its result follows the last answer, or when nobody types so fast."""
    if seconds < HUMAN_SECONDS:
        return "tool"
    for message in reversed(messages):
        if message["role"] == "tool":
            return "tool"
        if message["role"] == "assistant":
            break
    return "human"


def _texts(message: Message) -> list[str]:
    content = message.get("content")
    if isinstance(content, list):
        return [str(part.get("text", "")) for part in content if isinstance(part, dict)]
    return [content] if isinstance(content, str) else []
