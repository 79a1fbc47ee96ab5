"""Tokenizers by name: `tekken` (default, offline), `tekken:FILE`, `tiktoken:NAME`, `hf:PATH`.

Modules of single tokenizers are imported only when they are named: a run with Tekken loads no other library.
"""

from __future__ import annotations

import threading

from loadgen.errors import InputError
from loadgen.tokens.base import Tokenizer

DEFAULT = "tekken"

_loaded: dict[str, Tokenizer] = {}
_lock = threading.Lock()


def get(name: str = DEFAULT) -> Tokenizer:
    """The tokenizer called `name`, loaded once a process. Raises InputError for an unknown name or a file that cannot be used."""
    with _lock:
        if name not in _loaded:
            _loaded[name] = _load(name)
        return _loaded[name]


def is_local(tokenizer: Tokenizer) -> bool:
    """Whether `tokenizer` was loaded by `get` and so asks no endpoint."""
    return any(tokenizer is known for known in _loaded.values())


def _load(name: str) -> Tokenizer:
    kind, _, argument = name.partition(":")
    if kind == "tekken":
        from loadgen.tokens import tekken

        return tekken.load(name, argument or None)
    if kind == "tiktoken" and argument:
        from loadgen.tokens import openai_bpe

        return openai_bpe.load(name, argument)
    if kind == "hf" and argument:
        from loadgen.tokens import hf

        return hf.load(name, argument)
    raise InputError(
        f"no tokenizer is called {name!r}; use tekken, tekken:FILE, tiktoken:NAME (for example tiktoken:o200k_base) or hf:PATH (a tokenizer.json)"
    )
