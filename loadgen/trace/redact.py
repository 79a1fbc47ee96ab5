"""Secrets replaced by text of equal token length, so that lengths and shared prefixes stay.

A secret becomes the same stand-in wherever it occurs (a keyed digest decides, under a key drawn for each export), and
a text keeps its token count: the stand-in is chosen among random ones of the same kind until the count of its line
is what it was.
"""

from __future__ import annotations

import hashlib
import re
import secrets
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loadgen.outfile import refuse_input
from loadgen.trace.model import Header, Message, Session
from loadgen.trace.reader import TraceFile
from loadgen.trace.writer import TraceWriter

Count = Callable[[str], int]

PATTERNS: dict[str, re.Pattern[str]] = {
    "private key": re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?-----END [A-Z ]*PRIVATE KEY-----", re.S),
    "JWT": re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*"),
    "API key": re.compile(
        r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|\bsk_(?:live|test)_[A-Za-z0-9]{16,}|\bhf_[A-Za-z0-9]{20,}"
    ),
    "GitHub token": re.compile(r"\b(?:gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{40,})"),
    "AWS key": re.compile(r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"),
    "Slack token": re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
    "Google key": re.compile(r"\bAIza[\w-]{35}"),
    "bearer token": re.compile(r"(?<=[Bb]earer )[A-Za-z0-9._~+/-]{16,}=*"),
    "password": re.compile(
        r"""(?i)(?<=password=)[^\s"',;&]{4,}|(?<=password: )[^\s"',;&]{4,}|(?<=password":")[^"]{4,}|(?<=password": ")[^"]{4,}"""
    ),
    "URL credential": re.compile(r"(?<=://)[^\s/:@]+:[^\s/@]+(?=@)"),
}
PERSONAL: dict[str, re.Pattern[str]] = {
    "e-mail": re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]*\w"),
    "home folder": re.compile(r"(?<=/home/)[\w.-]+|(?<=/Users/)[\w.-]+"),
}
_TRIES = 400
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


class Redactor:
    """`text` replaces, `found` counts by kind. `personal` adds e-mail addresses and home folders."""

    def __init__(self, count: Count, *, personal: bool = False, key: bytes | None = None) -> None:
        self._count = count
        self._key = key or secrets.token_bytes(32)
        self._patterns = {**PATTERNS, **(PERSONAL if personal else {})}
        self._known: dict[str, str] = {}
        self.found: Counter[str] = Counter()
        self.inexact = 0

    def value(self, value: Any) -> Any:
        """All strings inside a JSON value."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, list):
            return [self.value(item) for item in value]
        if isinstance(value, dict):
            return {
                self.text(key) if isinstance(key, str) else key: self.value(item)
                for key, item in value.items()
            }
        return value

    def text(self, text: str) -> str:
        for kind, pattern in self._patterns.items():
            text = pattern.sub(lambda found, kind=kind: self._stand_in(kind, found), text)  # type: ignore[misc]
        return text

    def _stand_in(self, kind: str, found: re.Match[str]) -> str:
        self.found[kind] += 1
        secret = found.group()
        before, after = (
            found.string[max(0, found.start() - 80) : found.start()],
            found.string[found.end() : found.end() + 80],
        )
        if secret in self._known:
            return self._known[secret]
        wanted = self._count(before + secret + after)
        best, distance = "", 1 << 30
        for attempt in range(_TRIES):
            candidate = self._candidate(secret, attempt, shrink=attempt // 40)
            off = abs(self._count(before + candidate + after) - wanted)
            if off < distance and candidate != secret:
                best, distance = candidate, off
                if off == 0:
                    break
        self.inexact += distance != 0
        self._known[secret] = best
        return best

    def _candidate(self, secret: str, attempt: int, shrink: int) -> str:
        """Other letters and digits in the same places; a little shorter or longer after many tries."""
        stream = b""
        block = 0
        while len(stream) < len(secret) + 8:
            stream += hashlib.blake2b(
                secret.encode("utf-8", "replace"), key=self._key, salt=attempt.to_bytes(8) + block.to_bytes(8)
            ).digest()
            block += 1
        made = [
            _LETTERS[byte % 26]
            if c.islower()
            else _LETTERS[byte % 26].upper()
            if c.isupper()
            else str(byte % 10)
            if c.isdigit()
            else c
            for c, byte in zip(secret, stream, strict=False)
        ]
        change = shrink if attempt % 2 else -shrink
        if change > 0:
            made += [_LETTERS[byte % 26] for byte in stream[len(secret) : len(secret) + change]]
        elif change < 0 and len(made) + change > 3:
            del made[change:]
        return "".join(made)


def redact(trace: TraceFile, out: Path, redactor: Redactor) -> None:
    """A copy of `trace` with all texts through the redactor. Texts kept in files beside the trace come into it."""
    refuse_input(out, trace.files())
    header: Header = trace.header
    header.made = {**(header.made or {}), "redacted": True}
    with TraceWriter(out, header) as writer:

        def blob(ref: str) -> str:
            found = trace.blob(ref)
            value = found.json if found.file is None else trace.blob_path(ref).read_text(encoding="utf-8")
            return writer.json_blob(redactor.value(value))

        def message(old: Message) -> Message:
            content = old.get("content")
            if isinstance(content, dict):
                return {
                    **redactor.value({k: v for k, v in old.items() if k != "content"}),
                    "content": {"blob": blob(content["blob"])},
                }
            new: Message = redactor.value(old)
            return new

        for session in trace.sessions:
            writer.session(
                Session(
                    id=session.id,
                    parent=session.parent,
                    group=session.group,
                    start_s=session.start_s,
                    agent=session.agent,
                    system=None if session.system is None else blob(session.system),
                    tools=None if session.tools is None else blob(session.tools),
                )
            )
            for turn in trace.turns(session.id):
                if turn.append is not None:
                    turn.append = [message(old) for old in turn.append]
                if turn.answer is not None:
                    turn.answer = message(turn.answer)
                writer.turn(turn)
            writer.end(session.id)
