"""What every API module offers, and the reader of its events."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from loadgen.replay.wire.exchange import Answer, Usage

NOTHING = 0
TOKEN = 1  # content, reasoning or a tool call's delta, not empty
TEXT = 3  # visible text; a TOKEN too


class BadEventError(ValueError):
    """An event that parses as JSON and still cannot be what the API promises."""


@dataclass(frozen=True, slots=True)
class Output:
    """What is asked of the model. `tokens` is the limit; `forced` makes the output exactly that long (vLLM's
    `min_tokens` and `ignore_eos`, which public endpoints refuse). `extra` is added to the body as it is."""

    tokens: int | None = None
    forced: bool = True
    temperature: float | None = 0.0
    seed: int | None = None
    token_ids: bool = False  # ask for the generated ids (vLLM's `return_token_ids`)
    extra: Mapping[str, Any] = field(default_factory=dict)


class EventReader:
    """Reads one answer's events in order. Subclasses, one an API, implement `read`."""

    done_marker: ClassVar[bool] = True  # the stream ends with `[DONE]`

    __slots__ = ("answer", "ended", "event_tokens", "failure", "finish", "usage")

    def __init__(self, *, collect: bool = False) -> None:
        self.answer: Answer | None = Answer() if collect else None
        self.usage: Usage | None = None
        self.finish: str | None = None
        self.failure: str | None = None  # the server's words, when it reports an error inside the stream
        self.event_tokens: int | None = None  # tokens in the last token event, where the server tells
        self.ended = False  # the API's own last event was seen

    def read(self, event: dict[str, Any]) -> int:
        """Take in one decoded event; return NOTHING, TOKEN or TEXT. Raises BadEventError."""
        raise NotImplementedError


class Api(Protocol):
    """An API module: `chat`, `completions`, `responses`, `messages`.

    The body of a request is `head + b",".join(messages) + tail`; `message` gives the JSON of one message of OpenAI
    chat shape (made once, sent many times), `envelope` the two ends.
    """

    NAME: str
    PATH: str
    FORCES_LENGTH: bool  # whether the output's length can be forced

    def message(self, message: Mapping[str, Any]) -> bytes: ...

    def envelope(
        self, model: str, output: Output, *, system: bytes | None = None, tools: bytes | None = None
    ) -> tuple[bytes, bytes]: ...

    def events(self, *, collect: bool = False) -> EventReader: ...


def error_text(error: Any) -> str:
    """The words of an `error` object in any of the shapes that servers use."""
    if isinstance(error, dict):
        kind = error.get("type") or error.get("code")
        message = error.get("message")
        if isinstance(message, str):
            return f"{kind}: {message}" if kind else message
    return str(error)


def count(usage: Mapping[str, Any], key: str) -> int | None:
    """A token count of a usage object; None when absent or null. Raises BadEventError for anything that is no count."""
    value = usage.get(key)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise BadEventError(f"usage.{key} is {value!r}, which is no token count")
    return value


def detail(usage: Mapping[str, Any], group: str, key: str) -> int | None:
    """A count of a nested usage object, such as `prompt_tokens_details.cached_tokens`."""
    inner = usage.get(group)
    return count(inner, key) if isinstance(inner, dict) else None


def checked(usage: Usage) -> Usage:
    """The usage itself. Raises BadEventError when a part is larger than its whole."""
    for part, whole, name in (
        (usage.cached_tokens, usage.prompt_tokens, "cached prompt"),
        (usage.reasoning_tokens, usage.output_tokens, "reasoning"),
    ):
        if part is not None and whole is not None and part > whole:
            raise BadEventError(f"usage counts {part} {name} tokens of {whole}")
    return usage
