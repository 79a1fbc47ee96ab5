"""Secrets leave a message before it reaches the disk, and a text of equal token length takes their place.

One secret has one stand-in throughout a recording (keyed by a salt that is never stored), so that equal prefixes
stay equal and prompts keep their length. Found by pattern, by the value of the request's own credential headers,
and by entropy.
"""

from __future__ import annotations

import hashlib
import hmac
import itertools
import math
import re
import secrets
from collections import Counter
from collections.abc import Callable
from typing import Any

import orjson

from loadgen.record.headers import Headers
from loadgen.trace.model import Message

CREDENTIAL_HEADERS = frozenset(
    {
        "authorization",
        "x-api-key",
        "api-key",
        "cookie",
        "set-cookie",
        "proxy-authorization",
        "chatgpt-account-id",
        "openai-organization",
        "openai-project",
        "x-codex-installation-id",
        "x-goog-api-key",
    }
)
_OPAQUE_KEYS = frozenset({"signature", "encrypted_content", "data"})  # of `raw` originals
_IDENTIFIER_KEYS = frozenset({"id", "tool_call_id", "call_id", "type", "role", "name"})

# Every length has a bound: no text may cost more than a few times its length.
# Where a secret may begin: not inside a word, but behind an escape such as \n in JSON within text
_START = r"(?:(?<![A-Za-z0-9_])|(?<=\\[nrt]))"
_SECRETS = (
    _START + r"(?P<key>sk-[A-Za-z0-9_-]{16,512}"
    r"|gh[pousr]_[A-Za-z0-9]{20,255}|github_pat_[A-Za-z0-9_]{20,255}|glpat-[A-Za-z0-9_-]{16,255}"
    r"|(?:AKIA|ASIA)[0-9A-Z]{16}|xox[a-z]-[A-Za-z0-9-]{10,255}|AIza[0-9A-Za-z_-]{30,64}"
    r"|hf_[A-Za-z0-9]{20,64}|npm_[A-Za-z0-9]{30,64}|pypi-[A-Za-z0-9_-]{30,255}"
    r"|eyJ[A-Za-z0-9_-]{8,2048}\.eyJ[A-Za-z0-9_-]{8,4096}\.[A-Za-z0-9_-]{0,2048})",
    r"-----BEGIN [A-Z0-9 ]{0,20}PRIVATE KEY-----(?P<pem>(?:[^-]|-(?!----)){1,16384})",
    r"(?i:bearer\s{1,8})(?P<bearer>[A-Za-z0-9._~+/-]{16,4096}=*)",
    r"(?i:passw(?:or)?d|passphrase|secret(?:_?key)?|api_?key|access_?token|auth_?token)"
    r"""["']?\s{0,8}[=:]\s{0,8}["']?(?P<value>[^\s"'\\,;(){}<>\[\]$]{6,255})""",
    r"://[^\s/:@\"']{1,255}:(?P<url>[^\s/@\"'\\]{3,255})@",
    r"(?<![A-Za-z0-9+/_=\\-])(?P<run>[A-Za-z0-9+/_-]{24,}={0,2})",
)
_PERSONAL = (
    r"(?<![A-Za-z0-9._%+-])(?P<mail>[A-Za-z0-9._%+-]{1,64}@[A-Za-z0-9.-]{1,255}\.[A-Za-z]{2,24})",
    r"(?:/home/|/Users/)(?P<home>[A-Za-z0-9._-]{1,64})",
)
_PEM_RUN = re.compile(r"(?<!\\)[A-Za-z0-9+/=]{4,}")
_LONGEST_SECRET = 512  # a longer run is an image or an archive
_MIN_LEARNED = 8
_STEPS = 1000
_SEPARATORS = "-_./:=+"  # tell the kind of a secret, and keep the text around it well formed
_SIGNS = "!#%*?^~&"


class Redactor:
    """Redacts text and messages. `count` counts tokens; `personal` adds e-mail addresses and home folders."""

    def __init__(self, count: Callable[[str], int], *, personal: bool = False) -> None:
        self._count = count
        self._parts = (*(_PERSONAL if personal else ()), *_SECRETS)
        self._salt = secrets.token_bytes(32)
        self._stand_ins: dict[str, str] = {}
        self._learned: set[str] = set()
        self._pattern = re.compile("|".join(self._parts), re.DOTALL)

    @property
    def found(self) -> int:
        """How many different secrets were replaced."""
        return len(self._stand_ins)

    def learn(self, headers: Headers) -> None:
        """Remember the values of credential headers: they are secret wherever else they appear."""
        values = {
            word
            for name, value in headers
            if name.lower() in CREDENTIAL_HEADERS
            for word in value.split()
            if len(word) >= _MIN_LEARNED
        }
        if not values <= self._learned:
            self._learned |= values
            longest_first = sorted(self._learned, key=len, reverse=True)
            known = "|".join(re.escape(value) for value in longest_first)
            self._pattern = re.compile("|".join((f"(?P<known>{known})", *self._parts)), re.DOTALL)

    def pseudonym(self, identifier: str) -> str:
        """A short name that is equal for equal identifiers of this recording and tells nothing about them."""
        return hmac.new(self._salt, identifier.encode(), hashlib.sha256).hexdigest()[:12]

    def text(self, text: str) -> str:
        """The text redacted; every place is looked at once, so that no rule touches another's stand-in."""
        return self._pattern.sub(self._replace, text)

    def message(self, message: Message) -> Message:
        """The message with every text redacted; identifiers of calls stay, opaque provider blobs keep their length."""
        return {key: self._value(key, value) for key, value in message.items()}

    def value(self, value: Any) -> Any:
        """Any JSON value, such as a list of tools."""
        return self._value("", value)

    def _value(self, key: str, value: Any) -> Any:
        if isinstance(value, str):
            if key in _OPAQUE_KEYS:
                return self._filler(value)
            if key in _IDENTIFIER_KEYS:
                return value
            return self._arguments(value) if key == "arguments" else self.text(value)
        if isinstance(value, list):
            return [self._value(key, item) for item in value]
        if isinstance(value, dict):
            if key == "image_url" and str(value.get("url", "")).startswith("data:"):
                return value
            return {inner: self._value(inner, item) for inner, item in value.items()}
        return value

    def _arguments(self, text: str) -> str:
        """JSON in a string is redacted inside its own strings, and rewritten only when that changes something."""
        try:
            parsed = orjson.loads(text)
        except orjson.JSONDecodeError:
            return self.text(text)
        redacted = self._value("", parsed)
        return text if redacted == parsed else orjson.dumps(redacted).decode()

    def _replace(self, found: re.Match[str]) -> str:
        group = found.lastgroup
        assert group is not None
        secret = found[group]
        if group == "pem":
            stand_in = _PEM_RUN.sub(lambda run: self._stand_in(run[0]), secret)
        elif (group == "value" and not _plausible_value(secret)) or (
            group == "run" and not _looks_random(secret)
        ):
            return found[0]
        else:
            stand_in = self._stand_in(secret)
        start, end = found.start(group) - found.start(), found.end(group) - found.start()
        return found[0][:start] + stand_in + found[0][end:]

    def _stand_in(self, secret: str) -> str:
        known = self._stand_ins.get(secret)
        if known is None:
            known = self._stand_ins[secret] = self._make(secret)
        return known

    def _make(self, secret: str) -> str:
        """Characters of the same kinds in the same places; one after the other is drawn again until the count is right."""
        wanted = self._count(secret)
        chars = self._drawn(secret, b"start")
        off = abs(self._count(chars) - wanted)
        for step in range(_STEPS):
            if off == 0:
                break
            place = int.from_bytes(self._stream(secret, b"place%d" % step, 4)) % len(chars)
            changed = chars[:place] + self._drawn(chars[place], b"step%d" % step) + chars[place + 1 :]
            if (now := abs(self._count(changed) - wanted)) <= off:
                chars, off = changed, now
        return chars

    def _drawn(self, model: str, purpose: bytes) -> str:
        stream = self._stream(model, purpose, len(model))
        return "".join(_same_kind(char, byte) for char, byte in zip(model, stream, strict=True))

    def _stream(self, secret: str, purpose: bytes, size: int) -> bytes:
        return hashlib.shake_256(self._salt + purpose + b"|" + secret.encode()).digest(size)

    def _filler(self, value: str) -> str:
        return (self.pseudonym(value) * (len(value) // 12 + 1))[: len(value)]


def _same_kind(char: str, byte: int) -> str:
    if char.isdecimal():
        return chr(48 + byte % 10)
    if char.isalpha():
        return chr((65 if char.isupper() else 97) + byte % 26)
    return char if char in _SEPARATORS else _SIGNS[byte % len(_SIGNS)]


def _plausible_value(value: str) -> bool:
    """Whether what follows `password=` is a value rather than code: `password = get_password` stays."""
    return not value.isidentifier() or any(char.isdecimal() for char in value)


def _looks_random(run: str) -> bool:
    """Mixed case and digits, over 4 bits a character, changing kind at least every third character.

    Random base64 of 24 characters has about 4.3 bits and changes kind at six of ten characters; names in camel case
    change at one or two of ten. Lower-case hex (commit hashes) is no secret by itself.
    """
    if len(run) > _LONGEST_SECRET:
        return False
    kinds = ["d" if c.isdecimal() else "u" if c.isupper() else "l" if c.islower() else "" for c in run]
    letters = [kind for kind in kinds if kind]
    if not {"d", "u", "l"} <= set(letters):
        return False
    changes = sum(a != b for a, b in itertools.pairwise(letters))
    if changes * 3 < len(letters):
        return False
    size = len(run)
    entropy = -sum(n / size * math.log2(n / size) for n in Counter(run).values())
    return entropy >= 4.0
