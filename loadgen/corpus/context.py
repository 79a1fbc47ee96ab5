"""A context on disk: `context-0000.txt` beside `context-0000.json`, and one `manifest.json` for the set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from loadgen.errors import InputError

MANIFEST = "manifest.json"


class Context(msgspec.Struct, kw_only=True):
    """One context. `sha256` is the digest of the text file's bytes (UTF-8); `tokens` its exact count by `tokenizer`."""

    id: str
    file: str  # name of the text file, beside this record
    tokens: int
    sha256: str
    bytes: int
    tokenizer: str
    tokenizer_fingerprint: str
    corpus: str  # URL or path as the user gave it, without credentials
    commit: str | None  # null for a folder without git
    recipe_hash: str
    files: list[str] = []  # files used, in order
    group: str | None = None
    extra: dict[str, Any] = {}


class ContextSet(msgspec.Struct, kw_only=True):
    """`manifest.json`: all contexts of one build. `max_common_prefix` is the longest common token prefix of any two."""

    version: int = 1
    content_hash: str
    tokens: int
    tokenizer: str
    tokenizer_fingerprint: str
    max_common_prefix: int
    contexts: list[Context]


def load_set(folder: Path) -> ContextSet:
    """Read a folder of contexts. Raises InputError when it holds none or a text file has another size than recorded."""
    path = folder / MANIFEST
    try:
        found = msgspec.json.decode(path.read_bytes(), type=ContextSet)
    except (FileNotFoundError, NotADirectoryError):
        raise InputError(
            f"{folder} holds no {MANIFEST}; build contexts with `loadgen corpus build … -o {folder}`"
        ) from None
    except msgspec.DecodeError as error:
        raise InputError(f"{path} cannot be read ({error}); build the contexts again") from None
    for context in found.contexts:
        text = folder / context.file
        if not text.is_file() or text.stat().st_size != context.bytes:
            raise InputError(
                f"{text} is missing or has another size than {path} says; build the contexts again"
            )
    return found
