"""`slo.toml`: what a run must keep, as a typed file.

[[slo]]                       # a share of turns: at least 90 % of reuse turns within 8 s, shown with 95 % confidence
metric = "ttft"               # ttft, ttft_intended, tpot, chunk_gap, e2e, upload (seconds, endpoint time)
group = "reuse"               # all (default), first, reuse, rebuilt
percentile = 90
max_s = 8.0

[[slo]]                       # a share of turns within several limits at once
metric = "goodput"
ttft_s = 8.0
tpot_s = 0.05
min_share = 0.90

[[slo]]                       # figures of this run, compared as they are
metric = "cached_share"       # cached tokens of the expected reuse
group = "reuse"
min = 0.95

[[slo]]
metric = "errors"             # or output_tokens_s, turns_s, total_s
max = 0

[regression]                  # against --baseline
group = "reuse"
tolerance = 0.05
must_find = 0.25              # a green answer needs runs that would have found this much
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from loadgen.errors import InputError

TOLERANCE = 0.05  # a change that does not matter
Group = Literal["all", "first", "reuse", "rebuilt"]
TIMES = ("ttft", "ttft_intended", "tpot", "chunk_gap", "e2e", "upload")


class Rule(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """One `[[slo]]`. Which fields it needs follows from its metric; `check` says so."""

    metric: Literal[
        "ttft", "ttft_intended", "tpot", "chunk_gap", "e2e", "upload",
        "goodput", "cached_share", "errors", "output_tokens_s", "turns_s", "total_s",
    ]  # fmt: skip
    group: Group = "all"
    percentile: float | None = None
    max_s: float | None = None
    ttft_s: float | None = None
    tpot_s: float | None = None
    min_share: float | None = None
    min: float | None = None
    max: float | None = None

    def check(self) -> str:
        """What is wrong with the rule, or nothing."""
        given = {
            name
            for name in ("percentile", "max_s", "ttft_s", "tpot_s", "min_share", "min", "max")
            if getattr(self, name) is not None
        }
        if self.metric in TIMES:
            if given != {"percentile", "max_s"}:
                return f"{self.metric} takes percentile and max_s, and nothing else"
            assert self.percentile is not None
            return "" if 0 < self.percentile < 100 else "percentile must lie between 0 and 100"
        if self.metric == "goodput":
            if (
                "min_share" not in given
                or not given & {"ttft_s", "tpot_s"}
                or given - {"min_share", "ttft_s", "tpot_s"}
            ):
                return "goodput takes min_share with ttft_s, tpot_s or both"
            assert self.min_share is not None
            return "" if 0 < self.min_share < 1 else "min_share must lie between 0 and 1"
        return "" if given and given <= {"min", "max"} else f"{self.metric} takes min, max or both"


class Regression(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """`[regression]`: how a run is compared with its baseline."""

    group: Group = "reuse"
    tolerance: float = TOLERANCE
    must_find: float = 0.25


class Slo(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A whole file."""

    slo: list[Rule] = []
    regression: Regression = msgspec.field(default_factory=Regression)


def read_slo(path: Path) -> Slo:
    """Read and check a file. Raises InputError that names the rule."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), Slo)
    except FileNotFoundError:
        raise InputError(
            f"{path} does not exist; `loadgen gate --help` says what an SLO file holds"
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path} cannot be read: {error}") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{path} is not TOML: {error}") from None
    except msgspec.ValidationError as error:
        raise InputError(f"{path}: {error}") from None
    for number, rule in enumerate(found.slo, 1):
        if wrong := rule.check():
            raise InputError(f"{path}, rule {number}: {wrong}")
    if found.regression.tolerance < 0 or found.regression.must_find <= found.regression.tolerance:
        raise InputError(f"{path}: regression needs 0 <= tolerance < must_find")
    return found
