"""A session's prompt as bytes: each message becomes JSON once, and a turn's body is the old fragments plus new ones.

Nothing here tokenizes, decodes or copies history. A body is a list of parts for a gather write; contexts are views
into memory maps.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import orjson

from loadgen.replay.content import Contents, blob_ref, escaped
from loadgen.trace.model import Turn

Part = bytes | memoryview
Encode = Callable[[dict[str, Any]], bytes]

_MARK = "\x00blob\x00"
_MARK_JSON = escaped(_MARK)


class Transcript:
    """P(k) of one session. `encode` is the API's message encoder; `nonce` is the line in front of the first content, or empty.

    The system prompt stands apart from the messages, since APIs put it in different places: `system` is its JSON string.
    """

    def __init__(self, contents: Contents, encode: Encode, *, system: Any = None, nonce: str = "") -> None:
        self._contents = contents
        self._encode = encode
        self._nonce = nonce
        self._messages: list[list[Part]] = []
        self._flat: list[Part] = []  # the messages joined, a few parts a turn
        self._answer: dict[str, Any] | None = None
        self.system: bytes | None = None
        if system is not None:
            self.system = orjson.dumps(nonce + _text(system))
            self._nonce = ""

    def _parts(self, message: dict[str, Any], nonce: str) -> list[Part]:
        """The JSON of one message, in parts. A nonce becomes the first line of its text."""
        head = escaped(nonce)
        ref = blob_ref(message)
        if ref is None and not head:
            return [self._encode(message)]
        if isinstance(message.get("content"), list):
            return [self._encode({**message, "content": _in_front(nonce, message["content"])})]
        before, after = self._encode({**message, "content": _MARK}).split(_MARK_JSON)
        if ref is None:
            return [before + head + escaped(_text(message.get("content"))) + after]
        return [before + head, self._contents.fragment(ref), after]

    def _extend(self, messages: list[list[Part]]) -> None:
        """Append messages to the flat form: what is small becomes one part, so that a gather write has few entries."""
        parts: list[Part] = []
        for message in messages:
            if parts or self._flat:
                parts.append(b",")
            parts += message
        self._flat += _joined(parts)

    def advance(self, turn: Turn) -> None:
        """P(k) = (P(k-1) + [answer(k-1)])[:keep] + append."""
        if turn.attempt > 1 and turn.append is None:  # the same prompt again
            self._answer = None
            return
        known = len(self._messages)
        if self._answer is not None:
            self._messages.append(self._parts(self._answer, ""))
            self._answer = None
        rewound = turn.keep is not None and turn.keep < known
        if turn.keep is not None:
            del self._messages[turn.keep :]
        for message in turn.append or ():
            # The nonce belongs to the first message for good: a compaction that replaces it gets it again.
            self._messages.append(self._parts(message, self._nonce if not self._messages else ""))
        if rewound:
            self._flat = []
            self._extend(self._messages)
        else:
            self._extend(self._messages[known:])

    def set_answer(self, message: dict[str, Any] | None) -> None:
        """What stands as the assistant's answer in the next prompt."""
        self._answer = message

    def body(self, head: bytes, tail: bytes) -> list[Part]:
        """The request body: `head`, the messages joined by commas, `tail`. The cost is a few references a turn."""
        return [head, *self._flat, tail]


def _in_front(nonce: str, parts: list[Any]) -> list[Any]:
    """Content parts with the nonce at the beginning of the first text, which an image may not hide."""
    first = parts[0] if parts else None
    if isinstance(first, dict) and isinstance(first.get("text"), str):
        return [{**first, "text": nonce + first["text"]}, *parts[1:]]
    return [{"type": "text", "text": nonce}, *parts]


def _text(content: Any) -> str:
    """Content that a nonce can be put in front of, as text; parts are joined."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "".join(str(part.get("text", "")) for part in content if isinstance(part, dict))
    return orjson.dumps(content).decode()


def _joined(parts: Sequence[Part]) -> list[Part]:
    """Small neighbours joined, maps left alone, so that a gather write has few entries."""
    out: list[Part] = []
    small: list[bytes] = []
    for part in parts:
        if isinstance(part, bytes):
            small.append(part)
            continue
        if small:
            out.append(b"".join(small))
            small = []
        out.append(part)
    if small:
        out.append(b"".join(small))
    return out
