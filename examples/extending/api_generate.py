"""An API: SGLang's own `/generate`, with token ids as the prompt and events that repeat all of the text so far.

To ship it: put the module into `loadgen/replay/wire/`, its name into the tuple in `apis.py`, and `generate` into APIS in
`replay/options.py`. HTTP, time stamps, timeouts and classes of errors come from the connection and stay as they are.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from loadgen.replay.wire.api import NOTHING, TEXT, TOKEN, EventReader, Output, count, error_text
from loadgen.replay.wire.exchange import Usage

NAME = "generate"
PATH = "/generate"
FORCES_LENGTH = True


def message(message: Mapping[str, Any]) -> bytes:
    """A message's token ids as the JSON between two commas: made once, sent with every later turn."""
    return orjson.dumps(message["token_ids"])[1:-1]


def envelope(
    model: str, output: Output, *, system: bytes | None = None, tools: bytes | None = None
) -> tuple[bytes, bytes]:
    """Both ends of a body; the messages' fragments go between them, with commas."""
    sampling = {"temperature": output.temperature, "max_new_tokens": output.tokens}
    if output.forced:
        sampling |= {"min_new_tokens": output.tokens, "ignore_eos": True}
    options = {"stream": True, "sampling_params": sampling, **output.extra}
    return orjson.dumps(options)[:-1] + b',"input_ids":[', b"]}"


class Events(EventReader):
    """One answer's events. `read` says whether an event is a token; the reader in the connection stamps it."""

    __slots__ = ("_tokens",)

    def __init__(self, *, collect: bool = False) -> None:
        super().__init__(collect=collect)
        self._tokens = 0

    def read(self, event: dict[str, Any]) -> int:
        if event.get("error"):
            self.failure = error_text(event["error"])
            return NOTHING
        about = event.get("meta_info") or {}
        tokens = count(about, "completion_tokens") or 0
        self.event_tokens, self._tokens = tokens - self._tokens, tokens
        self.usage = Usage(
            prompt_tokens=count(about, "prompt_tokens"),
            output_tokens=tokens,
            cached_tokens=count(about, "cached_tokens"),
        )
        if about.get("finish_reason"):
            self.finish = str(about["finish_reason"].get("type"))
        if self.answer is not None:
            self.answer.text = event.get("text") or ""
        if not self.event_tokens:
            return NOTHING
        return TEXT if event.get("text") else TOKEN


def events(*, collect: bool = False) -> EventReader:
    return Events(collect=collect)
