"""From messages to token ids: a documented chat template whose parts add up, and a memory of what was tokenized.

The template, one special token where a name stands in brackets:

    [bos] { [role] content [end] } [assistant]

A message costs its content plus 2 tokens, a prompt 2 tokens more. Tools come first, as [tools] JSON [end]; a tool
call inside an assistant message is [call] JSON. Nothing is stripped, moved or dated, so P(k) is a prefix of
P(k+1) whenever the client appends. Special tokens have ids from 2^30 on, which no tokenizer uses.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any

import numpy as np
import orjson

from loadgen.sim.streams import Tokens
from loadgen.tokens.base import Tokenizer

FIRST_SPECIAL = 1 << 30
_NAMES = ("bos", "end", "system", "user", "assistant", "tool", "tools", "call", "think")
SPECIALS: dict[str, int] = {name: FIRST_SPECIAL + at for at, name in enumerate(_NAMES)}
_ROLES = {"developer": "system", "function": "tool"}
_MARK = {name: np.array([number], np.int32) for name, number in SPECIALS.items()}
OPENING_TOKENS = 2  # [bos] and the final [assistant]
MESSAGE_TOKENS = 2  # [role] and [end]


class Prompts:
    """Renders prompts. Safe to use from several threads: a text of 560 KB takes 0.1 to 0.4 s the first time."""

    def __init__(self, tokenizer: Tokenizer, memory_bytes: int = 1 << 29) -> None:
        self.tokenizer = tokenizer
        self._memory_bytes = memory_bytes
        self._known: OrderedDict[str, Tokens] = OrderedDict()
        self._size = 0
        self._lock = threading.Lock()
        self.tokenized_bytes = 0

    def text(self, text: str) -> Tokens:
        """Ids of plain text; remembered, since an agent sends its history again and again."""
        if not text:
            return np.empty(0, np.int32)
        with self._lock:
            found = self._known.get(text)
            if found is not None:
                self._known.move_to_end(text)
                return found
        ids = np.array(self.tokenizer.encode(text), np.int32)
        with self._lock:
            if text not in self._known:
                self._known[text] = ids
                self._size += _cost(text, ids)
                self.tokenized_bytes += len(text)
                while self._size > self._memory_bytes and len(self._known) > 1:
                    self._size -= _cost(*self._known.popitem(last=False))
        return ids

    def chat(
        self, messages: Sequence[dict[str, Any]], tools: Any = None, *, open_answer: bool = True
    ) -> Tokens:
        """Ids of a conversation by the template above."""
        parts = [_MARK["bos"]]
        if tools:
            parts += (_MARK["tools"], self.text(orjson.dumps(tools).decode()), _MARK["end"])
        for message in messages:
            role = message.get("role", "user")
            parts.append(_MARK.get(_ROLES.get(role, role), _MARK["user"]))
            if thought := message.get("reasoning") or message.get("reasoning_content"):
                parts += (_MARK["think"], self.text(thought), _MARK["end"])
            parts.append(self.text(content_text(message.get("content"))))
            for call in message.get("tool_calls") or ():
                parts += (_MARK["call"], self.text(orjson.dumps(_call(call.get("function", call))).decode()))
            parts.append(_MARK["end"])
        if open_answer:
            parts.append(_MARK["assistant"])
        return np.concatenate(parts)

    def decode(self, ids: Sequence[int]) -> str:
        """Text of ids; special tokens appear as `<|name|>`."""
        pieces: list[str] = []
        plain: list[int] = []
        for number in ids:
            if number < FIRST_SPECIAL:
                plain.append(number)
                continue
            pieces += (self.tokenizer.decode(plain), f"<|{_NAMES[number - FIRST_SPECIAL]}|>")
            plain = []
        return "".join(pieces) + (self.tokenizer.decode(plain) if plain else "")


def _call(function: dict[str, Any]) -> dict[str, Any]:
    """A tool call as templates get it: vLLM decodes the arguments, which come as JSON text, before it renders them."""
    arguments = function.get("arguments")
    try:
        decoded = orjson.loads(arguments) if isinstance(arguments, str) else arguments
    except orjson.JSONDecodeError:
        decoded = arguments
    return {"name": function.get("name"), "arguments": decoded}


def content_text(content: Any) -> str:
    """Text of a message's content: a string, null, or a list of parts of which those with text count."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(
            part if isinstance(part, str) else str(part.get("text") or "")
            for part in content
            if isinstance(part, str | dict)
        )
    return ""


def _cost(text: str, ids: Tokens) -> int:
    return len(text) + ids.nbytes
