"""Prompts as the server sees them: `/tokenize` of an endpoint, and whether a local tokenizer agrees with it."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

from loadgen.errors import InputError
from loadgen.replay.endpoint import Api
from loadgen.tokens.base import Tokenizer


class Renderer:
    """`/tokenize` of one endpoint; `available` is False where there is none."""

    def __init__(self, api: Api, model: str) -> None:
        self._api, self._model = api, model
        status, _, body = api.json(
            "POST", "/tokenize", {"model": model, "prompt": "a", "add_special_tokens": False}
        )
        self.available = status == 200 and isinstance(body, dict) and isinstance(body.get("tokens"), list)

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

    def detokenized(self, ids: list[int]) -> str:
        """Text of token ids."""
        status, _, answer = self._api.json("POST", "/detokenize", {"model": self._model, "tokens": ids})
        if status != 200 or not isinstance(answer, dict) or not isinstance(answer.get("prompt"), str):
            raise InputError(
                f"{self._api.url}/detokenize answered HTTP {status}; name the model's tokenizer with --tokenizer"
            )
        return str(answer["prompt"])

    def prompt(self, messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
        """Token ids of a chat prompt, the generation prompt included."""
        body: dict[str, Any] = {"messages": messages, "add_generation_prompt": True}
        if tools:
            body["tools"] = tools
        return self._ask(body)


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
