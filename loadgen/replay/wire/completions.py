"""OpenAI text completions with token ids as the prompt: what the model saw is exactly what was sent.

The generated ids come back with each chunk (vLLM's `return_token_ids`), so that a session can go on from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from loadgen.errors import InputError
from loadgen.replay.wire.api import NOTHING, TEXT, TOKEN, BadEventError, EventReader, Output, error_text
from loadgen.replay.wire.chat import StepUsage, sampling

NAME = "completions"
PATH = "/v1/completions"
FORCES_LENGTH = True


def fragment(ids: Sequence[int]) -> bytes:
    """Token ids as the JSON between two commas. Raises ValueError when there are none."""
    if not ids:
        raise ValueError("a prompt fragment needs at least one token id")
    return orjson.dumps(list(ids))[1:-1]


def message(message: Mapping[str, Any]) -> bytes:
    """The fragment of a message's `token_ids`: this API takes rendered tokens, not messages."""
    ids = message.get("token_ids")
    if not ids:
        raise InputError("the completions API sends token ids; render the messages to tokens first")
    return fragment(ids)


def envelope(
    model: str, output: Output, *, system: bytes | None = None, tools: bytes | None = None
) -> tuple[bytes, bytes]:
    """Both ends of a body. System prompt and tools are part of the rendered tokens and have no place here."""
    if system is not None or tools is not None:
        raise InputError(
            "the completions API has no system prompt and no tools; they are part of the rendered tokens"
        )
    options: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    options |= sampling(output, limit="max_tokens")
    return orjson.dumps(options)[:-1] + b',"prompt":[', b"]}"


class Events(EventReader):
    """Chunks of one completion. A chunk with ids is a token even if its text is still empty (half a character)."""

    __slots__ = ("_usage",)

    def __init__(self, *, collect: bool = False) -> None:
        super().__init__(collect=collect)
        self._usage = StepUsage()

    def read(self, event: dict[str, Any]) -> int:
        if event.get("error"):
            self.failure = error_text(event["error"])
            return NOTHING
        tokens = None
        if found := event.get("usage"):
            self.usage, tokens = self._usage.add(found)
        choices = event.get("choices")
        if not choices:
            return NOTHING
        try:
            choice = choices[0]
            text = choice.get("text")
            ids = choice.get("token_ids")
            if finish := choice.get("finish_reason"):
                self.finish = str(finish)
            if self.answer is not None:
                self.answer.text += text or ""
                self.answer.token_ids += ids or ()
        except (AttributeError, TypeError, KeyError, IndexError) as error:
            raise BadEventError(f"a chunk has an unknown shape: {error}") from None
        if not (text or ids):
            return NOTHING
        self.event_tokens = len(ids) if ids else tokens
        return TEXT if text else TOKEN


def events(*, collect: bool = False) -> EventReader:
    return Events(collect=collect)
