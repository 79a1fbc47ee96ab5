"""A Hugging Face `tokenizer.json`, by the `tokenizers` library (extra `hf`)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadgen.errors import InputError


class HfTokenizer:
    """`tokenizer.json` without its post-processor: no BOS or EOS is added, since the chat template does that.

    Added tokens that are special are kept from matching in text (`encode_special_tokens`).
    """

    def __init__(self, name: str, fingerprint: str, inner: Any, special_strings: tuple[str, ...]) -> None:
        self.name = name
        self.fingerprint = fingerprint
        self.special_strings = special_strings
        self._inner = inner

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._inner.encode(text, add_special_tokens=False).ids
        return ids

    def count(self, text: str) -> int:
        return len(self._inner.encode(text, add_special_tokens=False))

    def decode(self, ids: Sequence[int]) -> str:
        text: str = self._inner.decode(list(ids), skip_special_tokens=False)
        return text


def load(name: str, file: str) -> HfTokenizer:
    """Load `file`, a tokenizer.json or the folder that holds one."""
    try:
        from tokenizers import Tokenizer as Inner
    except ImportError:
        raise InputError(f"{name} needs the tokenizers library; pip install 'loadgen[hf]'") from None
    path = Path(file).expanduser()
    if path.is_dir():
        path = path / "tokenizer.json"
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"{name}: {path} cannot be read: {error.strerror}") from None
    try:
        content = json.loads(data)
        inner = Inner.from_buffer(data)
    except Exception as error:  # noqa: BLE001 - the library raises plain Exception for a file it cannot use
        raise InputError(f"{path} is not a tokenizer.json: {error}") from None
    inner.no_truncation()
    inner.no_padding()
    inner.encode_special_tokens = True
    specials = tuple(token["content"] for token in content.get("added_tokens", []) if token.get("special"))
    decisive = {key: content.get(key) for key in ("added_tokens", "normalizer", "pre_tokenizer", "model")}
    digest = hashlib.sha256(json.dumps(decisive, sort_keys=True, ensure_ascii=True).encode()).hexdigest()
    return HfTokenizer(name, digest, inner, specials)
