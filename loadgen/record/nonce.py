"""Claude Code's per-request nonce: `cch=…;` in the first line of its system prompt.

It stands before everything else, so a server that does not drop it can reuse nothing. In the trace it is put to
zeros; the raw value is kept in the list of calls, and `loadgen.record.breaking` puts such values back.
"""

from __future__ import annotations

import re

_NONCE = re.compile(r"\A(x-anthropic-billing-header:[^\n]*?\bcch=)([0-9A-Za-z]+)")


def normalise(system: str | None) -> tuple[str | None, str | None]:
    """The system prompt with its nonce zeroed, and the nonce (null where there is none)."""
    found = _NONCE.match(system) if system else None
    if found is None or system is None:
        return system, None
    return f"{found[1]}{'0' * len(found[2])}{system[found.end() :]}", found[2]


def inject(system: str | None, nonce: str) -> str:
    """The system prompt with `nonce` where one was zeroed, or in such a line of its own before everything else."""
    found = _NONCE.match(system or "")
    if found is None or system is None:
        return f"x-anthropic-billing-header: cch={nonce};\n{system or ''}".rstrip("\n")
    return f"{found[1]}{nonce}{system[found.end() :]}"
