"""How large a cache must be: the hit curve at a few sizes, and how long reuse waits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from loadgen.trace.curve import Curve, curve
from loadgen.trace.reader import TraceFile
from loadgen.trace.timeline import Caps, Timeline
from loadgen.trace.tree import PrefixTree

_SHARES = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 1.0)
_WITHIN = (
    ("1 s", 1),
    ("10 s", 10),
    ("1 min", 60),
    ("5 min", 300),
    ("15 min", 900),
    ("1 h", 3600),
    ("4 h", 14400),
    ("1 day", 86400),
)
_GB = 1e9


@dataclass(frozen=True, slots=True)
class Question:
    """How the sessions are played, and what a token takes. `tiers`: GB by name, each on top of those before it."""

    concurrency: int | None = None
    cap_tool_s: float | None = None
    cap_human_s: float | None = None
    kv_bytes: float | None = None
    tiers: dict[str, float] = field(default_factory=dict)


def hit_curve(trace: TraceFile, question: Question) -> Curve:
    """The LRU curve of the whole trace, played as asked."""
    caps = Caps(question.cap_tool_s, question.cap_human_s)
    return curve(PrefixTree(trace), Timeline(trace, lanes=question.concurrency, caps=caps))


def residency(found: Curve, question: Question) -> dict[str, Any]:
    """Sizes that reach given shares of the ideal hit share, and those of the tiers; keys in docs/traces.md."""
    sizes: list[tuple[float, str | None]] = [(found.size_for(share), None) for share in _SHARES]
    total = 0.0
    for name, gb in question.tiers.items():
        assert question.kv_bytes is not None
        total += gb
        sizes.append((total * _GB / question.kv_bytes, name))
    sizes.sort(key=lambda entry: entry[0])
    shares = found.hit_share([tokens for tokens, _ in sizes])
    ideal = float(found.hit_share([float("1e18")])[0])
    rows = [
        {
            "tokens": round(tokens),
            "gb": None if question.kv_bytes is None else tokens * question.kv_bytes / _GB,
            "hit_share": float(share),
            "of_ideal": float(share) / ideal if ideal else None,
            "tier": tier,
        }
        for (tokens, tier), share in zip(sizes, shares, strict=True)
    ]
    waits = found.within([seconds for _, seconds in _WITHIN])
    return {
        "concurrency": question.concurrency,
        "footprint_tokens": found.footprint,
        "block_accesses": found.block_accesses,
        "curve": rows,
        "reuse_within": [
            {"within": name, "share": float(share)} for (name, _), share in zip(_WITHIN, waits, strict=True)
        ],
    }
