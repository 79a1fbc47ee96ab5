"""Each message as it will stand in the trace: redacted, named by a digest, counted; remembered for the next request.

A request repeats almost all messages of the one before, so the work is done once a message, not once a request.
"""

from __future__ import annotations

import hashlib
from array import array
from collections import OrderedDict
from typing import Any

import msgspec
import orjson

from loadgen.record.redact import Redactor
from loadgen.tokens.base import Tokenizer
from loadgen.trace.model import Message
from loadgen.trace.prefix import message_digest

REMEMBER_BYTES = 256 << 20


class Entry(msgspec.Struct, kw_only=True):
    """`key` is the digest that grouping compares; `gist` names an answer even when the client has rewritten it;
    `ids` are the message's tokens, empty unless they are kept."""

    message: Message
    key: bytes
    gist: bytes | None
    tokens: int
    ids: array[int]


class MessageStore:
    """`redactor` null: messages are kept as they came and must not be written. `keep_ids`: token ids stay in memory."""

    def __init__(self, tokenizer: Tokenizer, redactor: Redactor | None, *, keep_ids: bool) -> None:
        self._tokenizer = tokenizer
        self._redactor = redactor
        self._keep_ids = keep_ids
        self._entries: OrderedDict[bytes, tuple[Entry, int]] = OrderedDict()
        self._bytes = 0

    def entry(self, message: Message) -> Entry:
        raw = orjson.dumps(message)
        name = hashlib.blake2b(raw, digest_size=16).digest()
        if (known := self._entries.get(name)) is not None:
            self._entries.move_to_end(name)
            return known[0]
        clean = self._redactor.message(message) if self._redactor is not None else message
        entry = self._counted(clean, message_digest(clean), text_of(clean))
        cost = 3 * len(raw)
        self._entries[name] = (entry, cost)
        self._bytes += cost
        while self._bytes > REMEMBER_BYTES and len(self._entries) > 1:
            _, (_, freed) = self._entries.popitem(last=False)
            self._bytes -= freed
        return entry

    def head(self, system: str | None, tools: list[Any]) -> Entry:
        """System prompt and tools as one entry, in the form of a message {role, content, tools}."""
        return self.entry({"role": "system", "content": system, "tools": tools})

    def _counted(self, message: Message, key: bytes, text: str) -> Entry:
        if not self._keep_ids:
            count = self._tokenizer.count(text)
            return Entry(message=message, key=key, gist=gist_of(message), tokens=count, ids=array("I"))
        ids = array("I", self._tokenizer.encode(text))
        return Entry(message=message, key=key, gist=gist_of(message), tokens=len(ids), ids=ids)


def gist_of(message: Message) -> bytes | None:
    """What stays of an assistant message when a client trims it or completes its calls: the calls' ids, else the text."""
    if message["role"] != "assistant":
        return None
    calls = [call["id"] or call["function"]["name"] for call in message.get("tool_calls", ())]
    return ("\n".join(calls) or text_of(message).strip()).encode()


def text_of(message: Message) -> str:
    """What a model reads of a message, without any template: role, thinking, content, calls; data of images left out."""
    parts = [message["role"], message.get("reasoning", "")]
    content = message.get("content")
    if isinstance(content, list):
        parts += [str(part.get("text", "")) for part in content if isinstance(part, dict)]
    elif isinstance(content, str):
        parts.append(content)
    for call in message.get("tool_calls", ()):
        parts += [call["function"]["name"], call["function"]["arguments"]]
    if message.get("tools"):
        parts.append(orjson.dumps(message["tools"]).decode())
    return "\n".join(part for part in parts if part)
