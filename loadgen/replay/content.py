"""Contents that are referenced by digest: contexts on disk, system prompts, tool lists.

A context is sent as a JSON string straight from a memory map, so its JSON-escaped form is kept once per content in
the user's cache (`fragments/<sha256>.json`, without the quotes) and shared by every session and worker that sends it.
"""

from __future__ import annotations

import hashlib
import mmap
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec
import orjson

from loadgen.corpus.context import Context
from loadgen.errors import InputError
from loadgen.paths import cache_dir
from loadgen.trace.reader import TraceFile


def escaped(text: str) -> bytes:
    """The inside of the JSON string that stands for `text`."""
    return orjson.dumps(text)[1:-1]


class Contents:
    """Resolves the blob references of one trace."""

    def __init__(self, trace: TraceFile) -> None:
        self._trace = trace
        self._maps: dict[str, memoryview] = {}
        self.files: set[str] = set()  # digests of texts beside the trace that are asked for

    def text(self, ref: str) -> str:
        """The text behind a reference. Raises InputError when its digest is another than the trace says."""
        blob = self._trace.blob(ref)
        if blob.file is None:
            return blob.json if isinstance(blob.json, str) else orjson.dumps(blob.json).decode()
        path = self._trace.blob_path(ref)
        try:
            data = path.read_bytes()
        except OSError as error:
            raise InputError(
                f"{self._trace.path} refers to {path}, which cannot be read: {error.strerror}"
            ) from None
        if hashlib.sha256(data).hexdigest() != blob.sha256:
            raise InputError(f"{path} is not the file that {self._trace.path} refers to: its SHA-256 differs")
        return data.decode("utf-8")

    def value(self, ref: str | None) -> Any:
        """The JSON value behind a reference (system prompt, tools), or None."""
        return None if ref is None else self._trace.blob(ref).json

    def recorded_tokens(self, ref: str, fingerprint: str) -> int | None:
        """Tokens of a context as its own record states them, for this very tokenizer and content; None when it does not."""
        blob = self._trace.blob(ref)
        if blob.file is None:
            return None
        record = self._trace.blob_path(ref).with_suffix(".json")
        try:
            context = msgspec.json.decode(record.read_bytes(), type=Context)
        except (OSError, msgspec.DecodeError):
            return None
        return (
            context.tokens
            if (context.sha256, context.tokenizer_fingerprint) == (blob.sha256, fingerprint)
            else None
        )

    def prepare_fragment(self, ref: str) -> None:
        """Make the escaped form of a file blob, if it is not in the cache yet. Safe under two makers at once.

        What stands in the trace itself has no such form: it is escaped when its session begins.
        """
        blob = self._trace.blob(ref)
        if blob.file is None:
            return
        self.files.add(blob.sha256)
        path = self._fragment_path(ref)
        if path.is_file():
            return
        data = escaped(self.text(ref))
        with tempfile.NamedTemporaryFile(dir=path.parent, delete=False) as file:
            file.write(data)
        os.replace(file.name, path)

    def _fragment_path(self, ref: str) -> Path:
        return cache_dir("fragments") / (self._trace.blob(ref).sha256 + ".json")

    def fragment(self, ref: str) -> memoryview:
        """The inside of the JSON string of a blob's text; for a file blob, a view into its memory map."""
        found = self._maps.get(ref)
        if found is None:
            if self._trace.blob(ref).file is None:
                found = memoryview(escaped(self.text(ref)))
            else:
                self.prepare_fragment(ref)
                with self._fragment_path(ref).open("rb") as file:
                    empty = not os.fstat(file.fileno()).st_size  # which no map can hold
                    found = memoryview(b"" if empty else _mapped(file.fileno()))
            self._maps[ref] = found
        return found


def _mapped(fileno: int) -> mmap.mmap:
    if sys.version_info >= (3, 13):  # without a descriptor of its own: `limits.MAPS_KEEP_FILES`
        return mmap.mmap(fileno, 0, access=mmap.ACCESS_READ, trackfd=False)
    return mmap.mmap(fileno, 0, access=mmap.ACCESS_READ)


def blob_ref(message: dict[str, Any]) -> str | None:
    """The reference in a message's content, if it is one."""
    content = message.get("content")
    return content["blob"] if isinstance(content, dict) and "blob" in content else None
