"""OpenAI text completions with token ids as the prompt: what the model saw is exactly what was sent.

The generated ids come back with each chunk (vLLM's `return_token_ids`), so that a session can go on from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from loadgen.errors import InputError
from loadgen.replay.wire.api import NOTHING, TEXT, TOKEN, EventReader, Output
from loadgen.replay.wire.choices import ChoiceEvents, body_options

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
    return orjson.dumps(body_options(model, output))[:-1] + b',"prompt":[', b"]}"


class Events(ChoiceEvents):
    """Chunks of one completion. A chunk with ids is a token even if its text is still empty (half a character)."""

    __slots__ = ()

    def _choice(self, choice: Mapping[str, Any]) -> int:
        text, ids = choice.get("text"), choice.get("token_ids")
        if self.answer is not None:
            self.answer.text += text or ""
            self.answer.token_ids += ids or ()
        if text:
            return TEXT
        return TOKEN if ids else NOTHING


def events(*, collect: bool = False) -> EventReader:
    return Events(collect=collect)
