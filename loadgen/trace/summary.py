"""The figures of `loadgen trace show`: one pass over a trace."""

from __future__ import annotations

from array import array
from collections import Counter
from typing import Any

from loadgen.trace.features import conversations
from loadgen.trace.model import Turn
from loadgen.trace.reader import TraceFile
from loadgen.trace.reuse import reuse

QUANTILES = (50, 90, 95, 99)


def quantiles(values: array[Any] | list[Any]) -> dict[str, float | None]:
    """n, mean, p50 … p99 by rank ceil(q·n), and max; null where there is no value."""
    ordered = sorted(values)
    n = len(ordered)
    found: dict[str, float | None] = {"n": n, "mean": sum(ordered) / n if n else None}
    for q in QUANTILES:
        found[f"p{q}"] = ordered[-(-q * n // 100) - 1] if n else None
    found["max"] = ordered[-1] if n else None
    return found


def summarize(trace: TraceFile) -> dict[str, Any]:
    """What a person wants to know of a trace. Keys are documented in docs/traces.md.

    Token sums are null when no turn says them; `ideal_hit_share` is the share of prompt tokens that earlier prompts
    held, null for a trace of lengths, and `ideal_hit_basis` says from what: `blocks`, `tokens`, or `characters` where
    the source counted no tokens.
    """
    per_session: Counter[str] = Counter()
    largest: dict[str, int] = {}
    prompts, outputs, new = array("Q"), array("Q"), array("Q")
    gaps: dict[str, array[float]] = {"tool": array("d"), "human": array("d")}
    sums: Counter[str] = Counter()
    known: Counter[str] = Counter()
    stops: Counter[str] = Counter()
    turns = retries = 0
    tokens_seen = shared_seen = 0
    measured = has_share = True
    for use in reuse(trace):
        turn = use.turn
        if turn.attempt > 1:
            retries += 1
        else:
            turns += 1
            per_session[turn.session] += 1
        _count(turn, use.tokens if use.measured else None, sums, known)
        stops[turn.stop or "unknown"] += 1
        if turn.gap is not None:
            gaps[turn.gap.kind].append(turn.gap.s)
        measured &= use.measured
        if use.tokens is not None:
            prompts.append(use.tokens)
            largest[turn.session] = max(largest.get(turn.session, 0), use.tokens)
        if use.shared is None or use.tokens is None:
            has_share = False
        else:
            tokens_seen += use.tokens
            shared_seen += use.shared
            new.append(use.tokens - use.shared)
        if turn.output_tokens is not None:
            outputs.append(turn.output_tokens)
    header = trace.header
    kinds: Counter[str] = Counter()
    if header.fidelity != "lengths":
        kinds.update(step.kind for found in conversations(trace) for step in found.steps)
    basis = "blocks" if header.fidelity == "blocks" else "tokens" if measured else "characters"
    return {
        "path": str(trace.path),
        "sha256": trace.sha256,
        "name": header.name,
        "fidelity": header.fidelity,
        "source": header.source.format if header.source else None,
        "tokenizer": header.tokenizer,
        "block_size": header.block_size,
        "sessions": len(trace.sessions),
        "sub_agents": sum(session.parent is not None for session in trace.sessions),
        "open_sessions": len(trace.open_sessions()),
        "turns": turns,
        "retries": retries,
        **{name: sums[name] if known[name] else None for name in _SUMS},
        "without": {name: turns + retries - known[name] for name in _SUMS},
        "ideal_hit_share": shared_seen / tokens_seen if has_share and tokens_seen else None,
        "ideal_hit_basis": basis if has_share else None,
        "compactions": None if header.fidelity == "lengths" else kinds["compaction"],
        "breaks": None if header.fidelity == "lengths" else kinds["break"],
        "stops": dict(stops.most_common()),
        "turns_per_session": quantiles([per_session[s.id] for s in trace.sessions]),
        "prompt_tokens": quantiles(prompts),
        "largest_prompt": quantiles(list(largest.values())),
        "new_tokens": quantiles(new),
        "output": quantiles(outputs),
        "tool_gap_s": quantiles(gaps["tool"]),
        "human_gap_s": quantiles(gaps["human"]),
    }


_SUMS = ("input_tokens", "output_tokens", "reasoning_tokens", "cached_tokens")


def _count(turn: Turn, prompt: int | None, sums: Counter[str], known: Counter[str]) -> None:
    values = (prompt, turn.output_tokens, turn.reasoning_tokens, turn.cached_tokens)
    for name, value in zip(_SUMS, values, strict=True):
        if value is not None:
            sums[name] += value
            known[name] += 1
