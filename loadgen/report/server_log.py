"""Tiers of turns from a server's log: joined once by request id, kept beside the samples, read with them from then on.

The samples stay as they were measured. What the log added stands in `tiers-log.jsonl`, one line a turn:
{"request_id": …, "tiers": {"compute", "hbm", "external", "unknown"}, "tier_source": "log"}.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import msgspec

from loadgen.errors import InputError
from loadgen.measure.journal import read_samples
from loadgen.measure.probes.lmcache_log import Lookup, client_ids, read_log
from loadgen.measure.sample import ErrorClass, Tiers

TIERS_FILE = "tiers-log.jsonl"
_SLACK = 1  # the token that is recomputed on a full hit


class _Turn(msgspec.Struct):
    """The fields of a sample that the join needs."""

    request_id: str
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    error: ErrorClass | None = None
    tiers: Tiers | None = None


class _Line(msgspec.Struct):
    request_id: str
    tiers: Tiers
    tier_source: Literal["log"] = "log"


@dataclass
class Coverage:
    """Turns that ended well: with a source before, sourced by the log, contradicted by their own usage, and not in it."""

    turns: int = 0
    before: int = 0
    found: int = 0
    contradicted: int = 0
    absent: int = 0

    def __str__(self) -> str:
        known = self.before + self.found
        text = f"{self.found} turns sourced from the log, {self.before} were before: {known} of {self.turns} known"
        if self.contradicted:
            text += f"; {self.contradicted} left out, whose usage says otherwise"
        if self.absent:
            text += f"; {self.absent} are not in the log"
        return text


def read_logs(logs: Sequence[Path]) -> dict[str, Lookup]:
    """Requests of all logs by every id that a client may have given them. Raises InputError when there are none."""
    by_client: dict[str, Lookup] = {}
    for path in logs:
        try:
            with path.open("rb") as file:
                found = read_log(file)
        except OSError as error:
            raise InputError(f"{path} cannot be read ({error.strerror})") from None
        if not found:
            raise InputError(
                f"{path} holds no lookups of LMCache (lines with `Reqid: …, LMCache hit tokens: …`); "
                "give the log of the engine, written with LMCACHE_LOG_LEVEL=INFO"
            )
        for engine_id, lookup in found.items():
            for name in client_ids(engine_id):
                by_client.setdefault(name, lookup)
    return by_client


def source_from_log(run_dir: Path, lookups: dict[str, Lookup]) -> Coverage:
    """Write the tiers of the turns that have no source and that the log can vouch for; an earlier file is replaced.

    A lookup counts when its prompt is as long as the turn's and its hits are what the answer's usage reported, where it
    did.
    """
    coverage = Coverage()
    path = run_dir / TIERS_FILE
    temporary = path.with_name(path.name + ".tmp")
    encode = msgspec.json.Encoder().encode
    try:
        with temporary.open("wb") as file:
            for line in _lines(run_dir, lookups, coverage):
                file.write(encode(line) + b"\n")
        temporary.replace(path)
    except OSError as error:
        raise InputError(f"{path} cannot be written: {error.strerror}") from None
    finally:
        temporary.unlink(missing_ok=True)
    return coverage


def _lines(run_dir: Path, lookups: dict[str, Lookup], coverage: Coverage) -> Iterator[_Line]:
    for turn in read_samples(run_dir).decoded(_Turn):
        if turn.error is not None:
            continue
        coverage.turns += 1
        if turn.tiers is not None:
            coverage.before += 1
        elif (lookup := lookups.get(turn.request_id)) is None:
            coverage.absent += 1
        elif not _agrees(turn, lookup):
            coverage.contradicted += 1
        else:
            coverage.found += 1
            yield _Line(turn.request_id, lookup.tiers)


def _agrees(turn: _Turn, lookup: Lookup) -> bool:
    if turn.prompt_tokens != lookup.total:
        return False
    found = lookup.tiers
    return turn.cached_tokens is None or abs(found.hbm + found.external - turn.cached_tokens) <= _SLACK


def read_tiers(run_dir: Path) -> dict[str, Tiers]:
    """Tiers by request id that a log added to this run; empty where none was read. Raises InputError for a damaged file."""
    path = run_dir / TIERS_FILE
    decode = msgspec.json.Decoder(_Line).decode
    found: dict[str, Tiers] = {}
    try:
        with path.open("rb") as file:
            for number, text in enumerate(file, 1):
                try:
                    line = decode(text)
                except (msgspec.DecodeError, UnicodeDecodeError) as error:
                    raise InputError(
                        f"{path}, line {number} is damaged ({error}); remove the file or give --server-log again"
                    ) from None
                found[line.request_id] = line.tiers
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise InputError(f"{path} cannot be read ({error.strerror})") from None
    return found
