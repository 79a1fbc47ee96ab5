"""Prompts as token ids, for the completions API: rendered by the endpoint before the load, sent as they are.

Only so can a session go on from the very tokens that the server generated: text that is tokenized again comes out
differently, and KV written while decoding is never hit. Each turn's prompt is the one before, the answer, and a tail that
the template puts behind it.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import msgspec

from loadgen.errors import InputError
from loadgen.replay.job import Job
from loadgen.replay.planner import Planner
from loadgen.replay.rendering import Renderer
from loadgen.tokens.template import common_prefix


class Step(msgspec.Struct, array_like=True):
    """What a turn adds. `reset`: `ids` is the whole prompt; else it follows the prompt before (and, where answers are the
    server's own, the generated ids)."""

    reset: bool
    ids: str  # comma-joined, ready to be sent


def render(planner: Planner, renderer: Renderer, job: Job) -> None:
    """Render every session's prompts into a folder of its own and set what is expected of each turn."""
    folder = Path(tempfile.mkdtemp(prefix="loadgen-rendered-"))
    for number, session in enumerate(job.sessions):
        prompts, tools, records = planner.prompts(session, job.nonce(session.nonce_key))
        steps: list[Step] = []
        before: list[int] = []
        total = 0  # tokens of the prompt before, as it will be sent
        rendered = 0  # of which the first so many are the rendering's; behind them stand generated ones
        for position, prompt in enumerate(prompts):
            ids = renderer.prompt(prompt, tools)
            planned = session.turns[position - session.lead] if position >= session.lead else None
            kept = common_prefix(before, ids)
            tail: list[int] | None = None
            generated = 0
            if position and job.answers == "tokens":
                answer = records[position - 1].answer
                tail = _behind(before, ids, _text_ids(renderer, answer))
                last = session.turns[position - 1 - session.lead] if position - 1 >= session.lead else None
                generated = (last.output_tokens or 0) if last is not None else 0
                if position - 1 < session.lead:
                    tail = None  # nothing was generated for a turn that was not sent
            own = (
                job.answers == "tokens" and position > session.lead
            )  # the server's ids stand behind the prompt before
            if tail is not None:
                steps.append(Step(False, _joined(tail)))
                reuse, total = total + max(0, generated - 1), total + generated + len(tail)
            else:
                steps.append(
                    Step(own or kept < len(before), _joined(ids if own or kept < len(before) else ids[kept:]))
                )
                reuse, total = min(kept, rendered) if position > session.lead else 0, len(ids)
                rendered = len(ids)
            if planned is not None:
                planned.target_tokens, planned.expected_reuse = total, reuse
            before = ids
        (folder / f"{number}.json").write_bytes(msgspec.json.encode(steps))
    job.rendered = str(folder)


def _joined(ids: list[int]) -> str:
    return ",".join(map(str, ids))


def _text_ids(renderer: Renderer, answer: dict[str, Any] | None) -> list[int]:
    content = (answer or {}).get("content")
    return renderer.text(content) if isinstance(content, str) and content else []


def _behind(before: list[int], ids: list[int], answer: list[int]) -> list[int] | None:
    """What follows the answer in the next prompt; None when the prompt is not the one before, then the answer."""
    cut = len(before) + len(answer)
    if ids[: len(before)] != before or not answer or ids[len(before) : cut] != answer:
        return None
    return ids[cut:]


class TokenTranscript:
    """A session's prompt as parts of comma-joined ids; what `transcript.Transcript` is for messages."""

    def __init__(self, job: Job, number: int) -> None:
        assert job.rendered is not None
        try:
            self._steps = msgspec.json.decode(
                (Path(job.rendered) / f"{number}.json").read_bytes(), type=list[Step]
            )
        except OSError as error:
            raise InputError(
                f"the rendered prompts in {job.rendered} cannot be read: {error.strerror}"
            ) from None
        self._parts: list[bytes | memoryview] = []
        self._position = -1

    system: bytes | None = None

    def advance(self, _: object) -> None:
        """Go on to the next turn's prompt."""
        self._position += 1
        step = self._steps[self._position]
        if step.reset:
            self._parts = []
        if step.ids:
            self._append(step.ids.encode())

    def set_answer(self, ids: list[int] | None) -> None:
        """Append what the server generated."""
        if ids:
            self._append(",".join(map(str, ids)).encode())

    def _append(self, fragment: bytes) -> None:
        self._parts.append(b"," + fragment if self._parts else fragment)

    def body(self, head: bytes, tail: bytes) -> list[bytes | memoryview]:
        return [head, *self._parts, tail]
