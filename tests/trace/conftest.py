"""Small traces, made with the writer or line by line."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HEADER = {"type": "trace", "version": 1, "fidelity": "messages"}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def answer(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


@pytest.fixture
def lines(tmp_path: Path) -> Callable[..., Path]:
    """Write records (dicts as JSON, bytes as they are) to trace.jsonl, one a line."""

    def write(*records: dict[str, Any] | bytes, end: bytes = b"\n") -> Path:
        path = tmp_path / "trace.jsonl"
        rows = [record if isinstance(record, bytes) else json.dumps(record).encode() for record in records]
        path.write_bytes(b"\n".join(rows) + end)
        return path

    return write
