"""A trace's sessions again: names, nonces and children of their own."""

from __future__ import annotations

from collections.abc import Mapping

from loadgen.replay.job import PlannedSession


def free_name(name: str, taken: Mapping[str, object]) -> str:
    """The name itself, or with more tildes where the trace has a session of that name."""
    while name in taken:
        name += "~"
    return name


def copied(sessions: list[PlannedSession], number: int, taken: Mapping[str, object]) -> list[PlannedSession]:
    """Copy `number` of all sessions: names, nonces and children of its own. Copy 0 is the original."""
    if number == 0:
        return sessions
    out = []
    for session in sessions:
        copy = PlannedSession(**{name: getattr(session, name) for name in session.__struct_fields__})
        copy.id = free_name(f"{session.id}~{number}", taken)
        copy.nonce_key = (
            f"{session.nonce_key} copy {number}"
            if session.nonce_key not in ("", "run")
            else session.nonce_key
        )
        copy.children = [
            (free_name(f"{child}~{number}", taken), after, waits) for child, after, waits in session.children
        ]
        out.append(copy)
    return out
