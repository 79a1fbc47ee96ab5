"""Prompts as the server sees them, counted by an endpoint itself, and whether a local tokenizer agrees with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from loadgen.errors import InputError
from loadgen.replay.endpoint import Api
from loadgen.tokens.base import Tokenizer
from loadgen.tokens.counting import Counting


class Renderer:
    """How one endpoint counts and renders; `available` is False where it tells neither."""

    def __init__(self, api: Api, model: str) -> None:
        self._api, self._model = api, model
        self._counting = Counting(api.url, self._post)
        probe = {"prompt": "a", "add_special_tokens": False}
        status, _, body = api.json("POST", "/tokenize", {"model": model, **probe})
        self.available = status == 200 and isinstance(body, dict) and isinstance(body.get("tokens"), list)
        if self.available and not body["tokens"]:
            try:
                self._counting.ids(probe)
            except InputError:
                self.available = False

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        status, _, answer = self._api.json("POST", path, {"model": self._model, **body})
        if status != 200 or not isinstance(answer, dict):
            said = answer.get("error", answer) if isinstance(answer, dict) else answer
            raise InputError(f"{self._api.url}{path} answered HTTP {status}: {str(said)[:300]}")
        return answer

    def text(self, text: str) -> list[int]:
        """Token ids of plain text."""
        return self._counting.ids({"prompt": text, "add_special_tokens": False})

    def detokenized(self, ids: list[int]) -> str:
        """Text of token ids."""
        return self._counting.text(ids)

    def prompt(self, messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
        """Token ids of a chat prompt, the generation prompt included."""
        body: dict[str, Any] = {"messages": messages, "add_generation_prompt": True}
        if tools:
            body["tools"] = tools
        return self._counting.ids(body)


def remembering(count: Callable[[str], int]) -> Callable[[str], int]:
    """The same count, asked once per text."""
    known: dict[bytes, int] = {}

    def counted(text: str) -> int:
        key = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        found = known.get(key)
        if found is None:
            found = known[key] = count(text)
        return found

    return counted


def agree(tokenizer: Tokenizer, renderer: Renderer, sample: str) -> tuple[bool, int, int]:
    """Whether the endpoint gives `sample` the same ids as the local tokenizer, and both counts."""
    local, remote = tokenizer.encode(sample), renderer.text(sample)
    return local == remote, len(local), len(remote)
