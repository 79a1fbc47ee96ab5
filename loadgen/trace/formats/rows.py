"""Reading foreign files: JSON lines, whole JSON documents and CSV, with every unreadable row counted.

Values of foreign rows are asked for by `get_*`: the wrong type is as good as absent.
"""

from __future__ import annotations

import csv
import io
import math
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import orjson

from loadgen.errors import InputError
from loadgen.trace.formats.base import Report
from loadgen.trace.lines import MAX_LINE, open_unpacked

MAX_DOCUMENT = 1 << 30
"""Bytes of a JSON document that has to be read as a whole."""


def read_all(path: Path) -> bytes:
    """A file, unpacked. Raises InputError when it cannot be read or is absurdly large."""
    file, _ = open_unpacked(path)
    with file:
        data = file.read(MAX_DOCUMENT + 1)
    if len(data) > MAX_DOCUMENT:
        raise InputError(f"{path} is larger than {MAX_DOCUMENT >> 20} MiB; split it")
    return data


def json_document(path: Path, report: Report) -> Any:
    """The file's JSON value, or null (counted) when it is none."""
    try:
        return orjson.loads(read_all(path))
    except orjson.JSONDecodeError:
        report.skip("file is no JSON", str(path))
        return None


def json_rows(path: Path, report: Report) -> Iterator[tuple[int, dict[str, Any]]]:
    """(line number, object) of every line that holds one. Blank lines are nothing; all else is counted."""
    for number, line in text_lines(path, report):
        if not line.strip():
            continue
        try:
            row = orjson.loads(line)
        except orjson.JSONDecodeError:
            cut = not line.endswith(b"\n")
            report.skip("last line is cut off" if cut else "line is no JSON", f"{path}:{number}")
            continue
        if isinstance(row, dict):
            yield number, row
        else:
            report.skip("line is no JSON object", f"{path}:{number}")


def logged_rows(path: Path, report: Report) -> Iterator[tuple[str, dict[str, Any]]]:
    """(place, object) of each entry of a log that is JSON lines, or one JSON document in a `.json` file."""
    if path.suffix == ".json":
        document = json_document(path, report)
        for number, row in enumerate(document if isinstance(document, list) else [document]):
            if isinstance(row, dict):
                yield f"{path} entry {number}", row
    else:
        for number, row in json_rows(path, report):
            yield f"{path}:{number}", row


def text_lines(path: Path, report: Report) -> Iterator[tuple[int, bytes]]:
    """(line number, line); a line beyond the limit is skipped piece by piece and counted."""
    file, _ = open_unpacked(path)
    with file:
        number = 0
        while line := file.readline(MAX_LINE + 1):
            number += 1
            if len(line) > MAX_LINE:
                report.skip(f"line is longer than {MAX_LINE >> 20} MiB", f"{path}:{number}")
                while line and not line.endswith(b"\n"):
                    line = file.readline(MAX_LINE)
                continue
            yield number, line


def csv_rows(path: Path, report: Report) -> Iterator[tuple[int, dict[str, str]]]:
    """(line number, row by column name)."""
    file, _ = open_unpacked(path)
    with file, io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="") as text:
        reader = csv.DictReader(text)
        try:
            for row in reader:
                if None in row.values() or None in row:
                    report.skip("row has another number of columns", f"{path}:{reader.line_num}")
                else:
                    yield reader.line_num, row
        except csv.Error as error:
            report.skip(f"CSV cannot be read on ({error})", f"{path}:{reader.line_num}")


def get_text(row: Any, *keys: str) -> str | None:
    """The first of the keys that holds a non-empty string."""
    if isinstance(row, dict):
        for key in keys:
            if isinstance(found := row.get(key), str) and found:
                return found
    return None


def get_number(row: Any, *keys: str) -> float | None:
    """The first of the keys that holds a finite number."""
    if isinstance(row, dict):
        for key in keys:
            found = row.get(key)
            if isinstance(found, int | float) and not isinstance(found, bool) and math.isfinite(found):
                return float(found)
    return None


def get_count(row: Any, *keys: str) -> int | None:
    """The first of the keys that holds a number of things, 0 or more."""
    found = get_number(row, *keys)
    return int(found) if found is not None and 0 <= found < 2**53 else None


def get_dict(row: Any, key: str) -> dict[str, Any]:
    """The object under a key, or an empty one."""
    found = row.get(key) if isinstance(row, dict) else None
    return found if isinstance(found, dict) else {}


def get_list(row: Any, key: str) -> list[Any]:
    """The list under a key, or an empty one."""
    found = row.get(key) if isinstance(row, dict) else None
    return found if isinstance(found, list) else []


def seconds(value: Any) -> float | None:
    """Unix seconds of an ISO-8601 text (without a zone: UTC) or of a number, whose unit its size tells (s, ms, µs, ns)."""
    if isinstance(value, bool):
        return None
    if isinstance(value, int | float) and math.isfinite(value) and value >= 0:
        for limit, unit in ((1e11, 1), (1e14, 1e3), (1e17, 1e6), (1e20, 1e9)):
            if value < limit:
                return value / unit
        return None
    if isinstance(value, str) and value:
        try:
            moment = datetime.fromisoformat(value)
            return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            try:
                return seconds(float(value))
            except ValueError:
                return None
    return None
