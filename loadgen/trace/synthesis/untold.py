"""What a trace does not tell, and a profile has to hold all the same."""

from __future__ import annotations

from collections.abc import Sequence

from loadgen.trace.features import Conversation

LEAST_CALLS = 30
"""Calls of known length that the four constants of `service` are fitted to at least."""


def untold(main: Sequence[Conversation], subs: Sequence[Conversation] = ()) -> list[str]:
    """A sentence for each kind of figure that no step of these sessions has, with what a fit puts in its place.

    `subs`: their sub-agents, of which only what the main sessions have is said to be missing. A kind of gap that never
    comes (a trace without a human's turns) is told: its table is never asked.
    """
    lacking = _lacking(main)
    notes = [f"the trace tells no {words}: {instead}" for words, instead in lacking.items()]
    notes += [
        f"the trace tells no {words} of sub-agents: {instead}"
        for words, instead in _lacking(subs).items()
        if words not in lacking
    ]
    if sum(step.e2e_s is not None for c in (*main, *subs) for step in c.steps) < LEAST_CALLS:
        notes.append("the trace tells no durations of calls: the profile's `service` is loadgen's default")
    return notes


def _lacking(found: Sequence[Conversation]) -> dict[str, str]:
    """What no step has, with what stands for it."""
    steps = [step for c in found for step in c.steps]
    later = [step for c in found for step in c.steps[1:]]
    lacking = {}
    if steps and all(step.output is None for step in steps):
        lacking["output lengths"] = "every answer of the profile has 1 token"
    for human, words in ((False, "gaps after a tool"), (True, "gaps of a human")):
        gaps = [step.gap_s for step in later if (step.gap_kind == "human") == human]
        if gaps and all(gap is None for gap in gaps):
            lacking[words] = "all of the profile's are 0 s"
    return lacking
