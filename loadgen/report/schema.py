"""The shapes of `summary.json` and of a sample as JSON Schema, generated from types so that they cannot drift.

`loadgen report --schema summary` prints one; the files in `schemas/` are the same text for other tools (a test compares).
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import Path
from typing import Any, Literal

import msgspec

from loadgen.measure.sample import Sample, Tiers
from loadgen.report.validity import Reason

KINDS = ("sample", "summary")


class Spread(msgspec.Struct, forbid_unknown_fields=True):
    """Seconds. Null: the sample cannot support it (too few turns, or its rank falls on a censored turn); `max` is the largest observed."""

    mean: float | None
    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None
    max: float | None


class Group(msgspec.Struct, forbid_unknown_fields=True):
    """One class of turns, or all. `censored` turns ended before a first token, `aborted` ones were cut on purpose, as
    the recorded turn was or with their lane, and have no usage. Token sums are over the other turns that ended well, null where one of them lacks the count."""

    turns: int
    errors: int
    censored: int
    aborted: int
    ttft_s: Spread
    ttft_intended_s: Spread
    upload_s: Spread
    tpot_s: Spread
    chunk_gap_s: Spread
    e2e_s: Spread
    prompt_tokens: int | None
    cached_tokens: int | None
    expected_reuse: int | None
    output_tokens: int | None


class Groups(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """`retry` is there only when the trace has retries."""

    all: Group
    first: Group
    reuse: Group
    rebuilt: Group
    retry: Group | msgspec.UnsetType = msgspec.UNSET


class Rate(msgspec.Struct, forbid_unknown_fields=True):
    """Per endpoint second of total time; null where total time is withheld. `goodput` needs `policy.slo_ttft_s` in run.json."""

    output_tokens_s: float | None
    prompt_tokens_s: float | None
    turns_s: float | None
    goodput: float | None


class Sessions(msgspec.Struct, forbid_unknown_fields=True):
    """`job_s`: first intended start to last end of a session; `stall_share`: part of it spent waiting for first tokens,
    null for a sweep, whose sessions wait for one another."""

    n: int
    job_s: Spread
    stall_share: float | None
    cut: int


class LoopLag(msgspec.Struct, forbid_unknown_fields=True):
    """Wall seconds; p50 of the median interval, p99 of the worst."""

    p50: float | None
    p99: float | None
    max: float | None


class Client(msgspec.Struct, forbid_unknown_fields=True):
    """The client's own behaviour, in wall seconds."""

    clock: Literal["kernel", "loop", "mixed"]
    lag_s: Spread
    coalesced: int
    loop_lag_s: LoopLag


class Steady(msgspec.Struct, forbid_unknown_fields=True):
    """The part of a closed run in which every lane had a session; rates of the turns that ended well within it."""

    from_s: float
    to_s: float
    turns: int
    turns_s: float
    output_tokens_s: float | None


class Summary(msgspec.Struct, forbid_unknown_fields=True):
    """`summary.json`. Times are endpoint seconds (wall time x `time_scale`)."""

    protocol: int
    arm: str
    valid: bool
    reasons: list[Reason]
    total_s: float | None
    time_scale: float
    groups: Groups
    rate: Rate
    sessions: Sessions
    tiers: Tiers
    client: Client
    steady: Steady | None = None  # null: no closed schedule, or its lanes were never all busy


def generated(kind: str) -> str:
    """The JSON Schema of `kind` (one of KINDS), as text."""
    schema: dict[str, Any] = msgspec.json.schema({"sample": Sample, "summary": Summary}[kind])
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema"
    return msgspec.json.format(msgspec.json.encode(schema, order="sorted"), indent=1).decode() + "\n"


def shipped(kind: str) -> str:
    """The file that ships."""
    return files("loadgen.report").joinpath("schemas", f"{kind}.schema.json").read_text(encoding="utf-8")


def main() -> None:
    """Write the files anew: `python -m loadgen.report.schema`, after a change of the types."""
    folder = Path(__file__).parent / "schemas"
    for kind in KINDS:
        (folder / f"{kind}.schema.json").write_text(generated(kind), encoding="utf-8")


if __name__ == "__main__":
    main()
