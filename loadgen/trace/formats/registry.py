"""All formats, and which one a file is in. The more particular ones stand first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson

from loadgen.errors import InputError
from loadgen.trace.formats import (
    aider,
    claude_code,
    claude_trace,
    cline,
    codex,
    conversations,
    flattened,
    gemini,
    hashed,
    lengths,
    litellm_logs,
    mini_swe_agent,
    opencode,
    openhands,
    otel,
    swe_agents,
    tracelab,
    weka,
)
from loadgen.trace.formats.base import Format, Head, Report
from loadgen.trace.lines import open_unpacked

FORMATS: tuple[Format, ...] = (
    opencode.FORMAT,
    weka.FORMAT,
    hashed.BAILIAN,
    hashed.MOONCAKE,
    lengths.AZURE,
    lengths.BURSTGPT,
    tracelab.FORMAT,
    codex.FORMAT,
    claude_trace.FORMAT,
    litellm_logs.FORMAT,
    flattened.AGENTIC,
    flattened.RFC,
    gemini.FORMAT,
    claude_code.FORMAT,
    cline.CLASSIC,
    cline.SDK,
    openhands.OUTPUT,
    openhands.EVENTS,
    mini_swe_agent.FORMAT,
    swe_agents.FORMAT,
    otel.FORMAT,
    openhands.LOGS,
    conversations.SHAREGPT,
    conversations.VLLM,
    aider.FORMAT,
)

HEAD = 64 << 10
_SKIPPED = frozenset((".git", "node_modules", "__pycache__"))


def by_name(name: str) -> Format:
    """The format of a name. Raises InputError naming all when there is none."""
    for candidate in FORMATS:
        if candidate.name == name:
            return candidate
    raise InputError(f"no format is called {name!r}; there are: {', '.join(f.name for f in FORMATS)}")


def files_of(paths: Iterable[Path]) -> list[Path]:
    """The files, and all files below the folders, in order of their names. Links to folders are not followed."""
    found: list[Path] = []
    for path in paths:
        if path.is_dir():
            for folder, folders, names in os.walk(path):
                folders[:] = sorted(name for name in folders if name not in _SKIPPED)
                found.extend(file for name in sorted(names) if (file := Path(folder, name)).is_file())
        elif path.is_file():
            found.append(path)
        elif path.exists():
            raise InputError(f"{path} is neither a file nor a folder")
        else:
            raise InputError(f"{path} does not exist")
    return list(dict.fromkeys(found))


def head_of(path: Path) -> Head:
    """The first 64 KiB of a file, unpacked, and the JSON in them."""
    file, _ = open_unpacked(path)
    with file:
        data = file.read(HEAD)
    lines = data.split(b"\n")
    rows = [row for line in lines if isinstance(row := _json(line), dict)]
    value = _json(data) if not rows and len(data) < HEAD else None
    return Head(path, data, rows[0] if rows else value, rows)


def _json(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def detect(paths: Sequence[Path], report: Report) -> dict[Format | None, list[Path]]:
    """Files by format; under null those of no known one. A damaged archive is counted, not raised."""
    found: dict[Format | None, list[Path]] = {}
    for path in paths:
        try:
            head = head_of(path)
        except InputError as error:
            report.skip(f"file cannot be read ({error})", str(path))
            continue
        match = next((candidate for candidate in FORMATS if candidate.detect(head)), None)
        found.setdefault(match, []).append(path)
    return found


def is_trace(path: Path) -> bool:
    """Whether a file is one of our own."""
    rows = head_of(path).rows
    return bool(rows) and rows[0].get("type") == "trace" and "fidelity" in rows[0]
