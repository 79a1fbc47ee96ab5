"""A finding: one check's outcome in words that can be acted on."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec


class Status(StrEnum):
    OK = "ok"
    NOTE = "note"  # worth knowing, nothing to do
    WARN = "warn"  # a run is possible; some figures will be missing or in doubt
    FAIL = "fail"  # a run would measure something else than the server
    SKIP = "skip"  # could not be looked at, and `seen` says why


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """`check` is a stable name; `seen` what was observed, `meaning` what follows, `remedy` what to do (empty: nothing).

    `data` holds the numbers for machines; times are seconds.
    """

    check: str
    status: Status
    seen: str
    meaning: str = ""
    remedy: str = ""
    data: dict[str, Any] = {}
