"""Prompts as the server sees them: token counts of contents, of prompts, and how much of each was sent before."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from loadgen.errors import InputError
from loadgen.replay.endpoint import Api
from loadgen.tokens.base import Tokenizer


class Renderer:
    """`/tokenize` of one endpoint. `available` is False where there is none; the counts are then the local tokenizer's."""

    def __init__(self, api: Api, model: str) -> None:
        self._api, self._model = api, model
        status, _, body = api.json("POST", "/tokenize", {"model": model, "prompt": "a", "add_special_tokens": False})
        self.available = status == 200 and isinstance(body, dict) and "tokens" in body

    def _ask(self, body: dict[str, Any]) -> list[int]:
        status, _, answer = self._api.json("POST", "/tokenize", {"model": self._model, **body})
        if status != 200 or not isinstance(answer, dict) or not isinstance(answer.get("tokens"), list):
            said = answer.get("error", answer) if isinstance(answer, dict) else answer
            raise InputError(f"{self._api.url}/tokenize answered HTTP {status}: {str(said)[:300]}")
        tokens: list[int] = answer["tokens"]
        return tokens

    def text(self, text: str) -> list[int]:
        """Token ids of plain text."""
        return self._ask({"prompt": text, "add_special_tokens": False})

    def prompt(self, messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
        """Token ids of a chat prompt, the generation prompt included."""
        body: dict[str, Any] = {"messages": messages, "add_generation_prompt": True}
        if tools:
            body["tools"] = tools
        return self._ask(body)


def counter(tokenizer: Tokenizer | None, renderer: Renderer) -> Callable[[str], int] | None:
    """Counts the tokens of a text, remembering every answer by its digest: locally when the tokenizer is known to be the
    endpoint's, else by asking. None when neither is possible."""
    if tokenizer is None and not renderer.available:
        return None
    known: dict[bytes, int] = {}

    def count(text: str) -> int:
        key = hashlib.blake2b(text.encode(), digest_size=16).digest()
        found = known.get(key)
        if found is None:
            found = known[key] = tokenizer.count(text) if tokenizer is not None else len(renderer.text(text))
        return found

    return count


def same_tokenizer(tokenizer: Tokenizer, renderer: Renderer, sample: str) -> tuple[int, int]:
    """Tokens of `sample` by the local tokenizer and by the endpoint. Equal ids, not just equal counts, make them equal."""
    local, remote = tokenizer.encode(sample), renderer.text(sample)
    if local == remote:
        return len(local), len(local)
    return len(local), len(remote) if len(remote) != len(local) else -len(remote)
