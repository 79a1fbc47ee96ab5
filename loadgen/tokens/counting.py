"""How a server counts tokens: in vLLM's words or in llama.cpp's.

vLLM's `/tokenize` takes `prompt`, or `messages` that it renders. llama.cpp's takes `content` and knows nothing of the other
two (it answers them with an empty list); `/apply-template` renders, and its prompts are read with special tokens.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from loadgen.errors import InputError

Post = Callable[[str, dict[str, Any]], dict[str, Any]]


class Counting:
    """Token ids and texts of the server at `url`. `post(path, body)` gives its answer, or raises InputError."""

    def __init__(self, url: str, post: Post) -> None:
        self._url = url
        self._post = post
        self._by_content = False

    def ids(self, body: dict[str, Any]) -> list[int]:
        """Token ids of `prompt`, or of `messages` and `tools` as the chat template renders them (the body of vLLM's `/tokenize`).

        Raises InputError where the server gives none.
        """
        if not self._by_content:
            ids = self._tokens(body)
            if ids or body.get("prompt") == "":
                return ids
        ids = self._ids_by_content(body)
        self._by_content = self._by_content or bool(ids)
        return ids

    def text(self, ids: list[int]) -> str:
        """Text of token ids. Raises InputError where the server gives none."""
        answer = self._post("/detokenize", {"tokens": ids})
        text = answer.get("prompt", answer.get("content"))
        if not isinstance(text, str):
            raise InputError(
                f"{self._url}/detokenize gives no text; name the model's tokenizer with --tokenizer"
            )
        return text

    def _ids_by_content(self, body: dict[str, Any]) -> list[int]:
        special = bool(body.get("add_special_tokens", True))
        text = body.get("prompt")
        if text is None:
            text = self._post("/apply-template", body).get("prompt")
        ids = self._tokens({"content": text, "add_special": special, "parse_special": True})
        if text and not ids:
            raise self._none()
        return ids

    def _tokens(self, body: dict[str, Any]) -> list[int]:
        ids = self._post("/tokenize", body).get("tokens")
        if not isinstance(ids, list):
            raise self._none()
        return ids

    def _none(self) -> InputError:
        return InputError(
            f"{self._url}/tokenize gives no token ids, so prompts cannot be counted there; name the model's tokenizer with "
            "--tokenizer, and build corpora without --host"
        )
