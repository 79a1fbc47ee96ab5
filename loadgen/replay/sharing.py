"""What sessions that share a nonce have in common: sub-agents with their parent, teams with one system prompt.

Prompts are remembered by the chain of their messages, so that the longest common start of a new prompt with any earlier
one costs its own length and no comparison.
"""

from __future__ import annotations

import hashlib
from typing import Any

import orjson

from loadgen.trace.model import Message


class Sent:
    """The prompts of a run, by nonce, in the order in which their sessions are planned."""

    def __init__(self) -> None:
        self._known: dict[bytes, list[Message]] = {}  # digest of a chain -> some prompt that begins with it

    def longest(
        self, nonce_key: str, tools: list[Any] | None, prompt: list[Message]
    ) -> tuple[list[Message], int] | None:
        """An earlier prompt under this nonce with the same tools that shares the most first messages, and how many.

        None when no prompt with these tools was sent.
        """
        chain = self._start(nonce_key, tools)
        found = self._known.get(chain)
        if found is None:
            return None
        same = 0
        for message in prompt:
            chain = _next(chain, message)
            longer = self._known.get(chain)
            if longer is None:
                break
            found, same = longer, same + 1
        return found, same

    def add(self, nonce_key: str, tools: list[Any] | None, prompt: list[Message]) -> None:
        """Remember a prompt, and with it every shorter one that it begins with."""
        chain = self._start(nonce_key, tools)
        self._known.setdefault(chain, prompt)
        for message in prompt:
            chain = _next(chain, message)
            self._known.setdefault(chain, prompt)

    @staticmethod
    def _start(nonce_key: str, tools: list[Any] | None) -> bytes:
        return hashlib.blake2b(nonce_key.encode() + b"\0" + orjson.dumps(tools), digest_size=16).digest()


def _next(chain: bytes, message: Message) -> bytes:
    return hashlib.blake2b(chain + orjson.dumps(message), digest_size=16).digest()
