"""Prefix structure: for every prompt, how many of its leading messages an earlier prompt already held.

Sharing is found by content, not by declared parents: a chain of digests over system, tools and messages. So a
fork, a resumed session or a common context is seen as what it is for a prefix cache. Only prompts count as sent;
a recorded answer counts once a later prompt has carried it (`answer_shared` tells when it is all that is missing).
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import orjson

from loadgen.trace.model import Message, Session, Turn

_DIGEST = 16  # bytes; 2^-64 chance of a false match at 2^32 messages


@dataclass(frozen=True, slots=True)
class Prefix:
    """One turn's prompt against all prompts before it.

    messages: length of the prompt. shared: leading messages that an earlier prompt held. source: the (session,
    index) that first held them; null when nothing is shared, not even system and tools. head_shared: system and
    tools are those of an earlier prompt. answer_shared: the message after the shared ones is the answer of `source`'s
    session to its longest prompt so far, which a server that kept the KV of its answer would also have.
    """

    session: str
    index: int
    attempt: int
    messages: int
    shared: int
    source: tuple[str, int] | None
    head_shared: bool
    answer_shared: bool


def message_digest(message: Message) -> bytes:
    """Digest of what a model sees of a message: everything but `raw`."""
    return hashlib.blake2b(_visible(message), digest_size=_DIGEST).digest()


def _visible(message: Message) -> bytes:
    seen = {key: value for key, value in message.items() if key != "raw"} if "raw" in message else message
    return orjson.dumps(seen, option=orjson.OPT_SORT_KEYS)


BlobSize = Callable[[str], int]


class Prompt:
    """The prompt of a session as chain digests: `chain[i]` stands for system, tools and messages up to i.

    `sizes[i]` is the size of the same in bytes of JSON, blobs counted with their content: a weight where token
    counts are not known.
    """

    __slots__ = ("_blob_size", "answer", "base", "chain", "head", "head_size", "index", "sizes")

    def __init__(self, session: Session, scope: str, blob_size: BlobSize) -> None:
        text = f"{scope}|{session.system}|{session.tools}"
        self.head = hashlib.blake2b(text.encode(), digest_size=_DIGEST).digest()
        self.head_size = sum(blob_size(ref) for ref in (session.system, session.tools) if ref)
        self.chain: list[bytes] = []
        self.sizes: list[int] = []
        self.base: tuple[list[bytes], list[int]] = ([], [])  # of P(k-1) and its answer
        self.answer: tuple[bytes, int] | None = None  # of P(k) and its answer
        self.index = -1
        self._blob_size = blob_size

    def advance(self, turn: Turn) -> None:
        """Make this the prompt of `turn`, which follows the turn it was made for before."""
        if turn.index != self.index:
            more = ([], []) if self.answer is None else ([self.answer[0]], [self.answer[1]])
            self.base = (self.chain + more[0], self.sizes + more[1])
            self.index = turn.index
        if turn.append is not None:
            self.chain, self.sizes = self.base[0][: turn.keep], self.base[1][: turn.keep]
            for message in turn.append:
                digest, size = self._next(message)
                self.chain.append(digest)
                self.sizes.append(size)
        self.answer = None if turn.answer is None else self._next(turn.answer)

    def _next(self, message: Message) -> tuple[bytes, int]:
        last, size = (self.chain[-1], self.sizes[-1]) if self.chain else (self.head, self.head_size)
        data = _visible(message)
        content = message.get("content")
        if isinstance(content, dict):
            size += self._blob_size(content["blob"])
        digest = hashlib.blake2b(last, digest_size=_DIGEST)
        digest.update(data)
        return digest.digest(), size + len(data)


class PrefixIndex:
    """Takes turns in the order in which they are sent and says what each shares with those before it.

    `scope(session)` names the cache that a session may share; default: one for all. `blob_size(ref)`: size in
    bytes of a blob, for `Prompt.sizes`. Memory: about 200 bytes a distinct message.
    """

    def __init__(
        self, scope: Callable[[Session], str] | None = None, blob_size: BlobSize = lambda ref: 0
    ) -> None:
        self._scope = scope
        self._blob_size = blob_size
        self._first: dict[bytes, tuple[str, int]] = {}
        self._answers: set[bytes] = set()
        self._prompts: dict[str, Prompt] = {}

    def prompt(self, session_id: str) -> Prompt:
        """The session's prompt as of its last turn. Raises KeyError before its first."""
        return self._prompts[session_id]

    def add(self, session: Session, turn: Turn) -> Prefix:
        """The prefix of `turn`; from now on its prompt counts as sent."""
        prompt = self._prompts.get(session.id)
        if prompt is None:
            scope = "" if self._scope is None else self._scope(session)
            prompt = self._prompts[session.id] = Prompt(session, scope, self._blob_size)
        prompt.advance(turn)
        chain = prompt.chain
        shared = _known(self._first, chain)
        source = self._first[chain[shared - 1]] if shared else self._first.get(prompt.head)
        head_shared = prompt.head in self._first
        answer_shared = shared < len(chain) and chain[shared] in self._answers
        me = (session.id, turn.index)
        self._first.setdefault(prompt.head, me)
        for digest in chain[shared:]:
            self._first[digest] = me
        if prompt.answer is not None:
            self._answers.add(prompt.answer[0])
        return Prefix(
            session.id, turn.index, turn.attempt, len(chain), shared, source, head_shared, answer_shared
        )

    def forget(self, session_id: str) -> None:
        """The session has ended: drop its prompt, keep what it sent."""
        self._prompts.pop(session_id, None)


def _known(first: dict[bytes, tuple[str, int]], chain: list[bytes]) -> int:
    """Length of the known part of a chain: whoever holds digest i holds all before it, so bisect."""
    low, high = 0, len(chain)
    while low < high:
        middle = (low + high) // 2
        if chain[middle] in first:
            low = middle + 1
        else:
            high = middle
    return low


def prefixes(
    turns: Iterable[tuple[Session, Turn]], scope: Callable[[Session], str] | None = None
) -> Iterator[Prefix]:
    """`PrefixIndex` over turns in the order in which they are sent."""
    index = PrefixIndex(scope)
    for session, turn in turns:
        yield index.add(session, turn)
