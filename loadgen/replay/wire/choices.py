"""What chat and text completions share: the fields that ask for an output, usage, and chunks with choices."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadgen.replay.wire.api import (
    NOTHING,
    BadEventError,
    EventReader,
    Output,
    checked,
    count,
    detail,
    error_text,
)
from loadgen.replay.wire.exchange import Usage


def body_options(model: str, output: Output) -> dict[str, Any]:
    """Every field of a body but the prompt."""
    fields: dict[str, Any] = {"model": model, "stream": True, "stream_options": {"include_usage": True}}
    if output.tokens is not None:
        fields["max_tokens"] = output.tokens
        if output.forced:
            fields |= {"min_tokens": output.tokens, "ignore_eos": True}
    if output.temperature is not None:
        fields["temperature"] = output.temperature
    if output.seed is not None:
        fields["seed"] = output.seed
    if output.token_ids:
        fields["return_token_ids"] = True
    return fields | dict(output.extra)


class ChoiceEvents(EventReader):
    """Chunks with choices, of which only the first counts: this client asks for one. Subclasses read it in `_choice`.

    Usage may come once, at the end, or with every chunk; then it also tells how many tokens a chunk holds.
    """

    __slots__ = ("_seen_tokens",)

    def __init__(self, *, collect: bool = False) -> None:
        super().__init__(collect=collect)
        self._seen_tokens = 0  # output tokens up to the last usage

    def read(self, event: dict[str, Any]) -> int:
        if event.get("error"):
            self.failure = error_text(event["error"])
            return NOTHING
        tokens = self._count(event["usage"]) if event.get("usage") else None
        choices = event.get("choices")
        if not choices:
            return NOTHING
        try:
            choice = choices[0]
            if finish := choice.get("finish_reason"):
                self.finish = str(finish)
            kind = self._choice(choice)
            if kind:
                ids = choice.get("token_ids")
                self.event_tokens = len(ids) if ids else tokens
        except (AttributeError, TypeError, KeyError, IndexError) as error:
            raise BadEventError(f"a chunk has an unknown shape: {error}") from None
        return kind

    def _choice(self, choice: Mapping[str, Any]) -> int:
        """Take in the first choice of a chunk; what it is, as `read` returns it."""
        raise NotImplementedError

    def _count(self, found: Any) -> int | None:
        """Keep the usage; the output tokens since the last one. Raises BadEventError for impossible counts."""
        if not isinstance(found, dict):
            raise BadEventError("usage is not an object")
        self.usage = checked(
            Usage(
                prompt_tokens=count(found, "prompt_tokens"),
                cached_tokens=detail(found, "prompt_tokens_details", "cached_tokens"),
                output_tokens=count(found, "completion_tokens"),
                reasoning_tokens=detail(found, "completion_tokens_details", "reasoning_tokens"),
                raw=dict(found),
            )
        )
        total = self.usage.output_tokens
        if total is None:
            return None
        step, self._seen_tokens = total - self._seen_tokens, total
        return step
