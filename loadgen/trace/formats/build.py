"""From families of `Agent`s to a trace: what each prompt keeps of the one before, gaps, parents, counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

from loadgen.errors import InputError
from loadgen.trace.formats.base import Agent, Call, Report
from loadgen.trace.model import Gap, Header, Message, Parent, Seen, Session, Turn
from loadgen.trace.writer import TraceWriter


def build(families: Iterable[list[Agent]], out: Path, header: Header, report: Report) -> Counter[str]:
    """Write the agents as a trace and return counts of sessions, sub-agents, turns and retries.

    An agent without calls is left out and counted; a child of such an agent becomes a session of its own. Starts are
    moved so that the earliest is 0. What was skipped and noted goes into the header's `made`.
    Raises InputError when nothing could be imported.
    """
    counts: Counter[str] = Counter()
    taken: set[str] = set()
    with TraceWriter(out, header, rebase=True) as writer:
        for family in families:
            for agent in _prepare(family, taken, report):
                _write(writer, agent, family, report)
                counts["sessions"] += 1
                counts["sub_agents"] += agent.parent is not None
                counts["turns"] += sum(call.attempt == 1 for call in agent.calls)
                counts["retries"] += sum(call.attempt > 1 for call in agent.calls)
        if not counts["sessions"]:
            why = "; ".join(f"{n} × {reason}" for reason, n in report.skipped.most_common(5))
            raise InputError(f"nothing could be imported{f': {why}' if why else ''}")
        header.made = {**(header.made or {}), **counts}
        for name, reasons in (("skipped", report.skipped), ("notes", report.notes)):
            if reasons:
                header.made[name] = dict(reasons.most_common())
    return counts


def _prepare(family: list[Agent], taken: set[str], report: Report) -> list[Agent]:
    """The agents that have calls, with ids that are unique in the file and parents that exist."""
    names: dict[str, str] = {}
    kept: list[Agent] = []
    for agent in family:
        if not agent.calls:
            report.skip("agent without a model call", agent.id)
            continue
        base = name = agent.id[:480] or "session"
        number = 1
        while name in taken:
            number += 1
            name = f"{base}#{number}"
        if number > 1:
            report.note("session id occurs twice, renamed", name)
        taken.add(name)
        names.setdefault(agent.id, name)
        agent.id = name
        if agent.parent is not None:
            parent = names.get(agent.parent[0])
            agent.parent = None if parent is None else (parent, agent.parent[1])
            if agent.parent is None:
                report.note("parent of a sub-agent is not there", name)
        kept.append(agent)
    family[:] = kept
    return kept


def _write(writer: TraceWriter, agent: Agent, family: list[Agent], report: Report) -> None:
    start = next((call.start_s for call in agent.calls if call.start_s is not None), 0.0)
    parent = None
    parent_agent: Agent | None = None
    if agent.parent is not None:
        parent_agent = next(other for other in family if other.id == agent.parent[0])
        number = min(agent.parent[1], len(parent_agent.calls) - 1)
        turn = sum(call.attempt == 1 for call in parent_agent.calls[: number + 1]) - 1
        parent = Parent(
            session=parent_agent.id,
            turn=max(turn, 0),
            call_id=agent.call_id,
            wait=_waits(agent, parent_agent, number),
        )
    writer.session(
        Session(
            id=agent.id,
            parent=parent,
            group=agent.group,
            start_s=max(start, 0.0),
            agent=agent.kind,
            system=None if agent.system is None else writer.json_blob(agent.system),
            tools=None if not agent.tools else writer.json_blob(agent.tools),
        )
    )
    ends = _child_ends(agent, family)
    if agent.parent is not None and parent_agent is not None:
        previous_end = _end(parent_agent.calls[min(agent.parent[1], len(parent_agent.calls) - 1)])
    else:
        previous_end = None
    index = -1
    base: list[Message] = []
    prompt: list[Message] = []
    answer: Message | None = None
    for number, call in enumerate(agent.calls):
        first_attempt = call.attempt == 1
        if first_attempt:
            index += 1
            base = prompt if answer is None else [*prompt, answer]
        turn_record = _turn(agent.id, index, call, base)
        if first_attempt and (index > 0 or parent is not None):
            turn_record.gap = _gap(call, turn_record, previous_end, index, report, agent.id)
        writer.turn(turn_record)
        if call.prompt is not None:
            prompt = call.prompt
        answer = call.answer
        end = _end(call)
        awaited = ends.get(number, [])
        previous_end = max([end, *awaited]) if end is not None else None
    writer.end(agent.id)


def _turn(session: str, index: int, call: Call, base: list[Message]) -> Turn:
    keep: int | None = None
    append: list[Message] | None = None
    if call.prompt is not None:
        shared = common(base, call.prompt)
        keep = None if shared == len(base) else shared
        append = call.prompt[shared:]
    seen = Seen(ttft_s=_span(call.start_s, call.first_s), e2e_s=_span(call.start_s, call.end_s))
    prompt_tokens = call.input_tokens
    cached = call.cached_tokens
    return Turn(
        session=session,
        index=index,
        attempt=call.attempt,
        keep=keep,
        append=append,
        blocks=call.blocks,
        answer=call.answer,
        input_tokens=prompt_tokens,
        output_tokens=call.output_tokens,
        reasoning_tokens=_at_most(call.reasoning_tokens, call.output_tokens),
        cached_tokens=_at_most(cached, prompt_tokens),
        stop=call.stop,
        seen=None if seen.ttft_s is None and seen.e2e_s is None else seen,
    )


def common(base: list[Message], prompt: list[Message]) -> int:
    """Length of the common prefix of two message lists."""
    limit = min(len(base), len(prompt))
    for i in range(limit):
        if base[i] is not prompt[i] and base[i] != prompt[i]:
            return i
    return limit


def _gap(
    call: Call, turn: Turn, previous_end: float | None, index: int, report: Report, where: str
) -> Gap | None:
    seconds = call.gap_s
    if seconds is None:
        if call.start_s is None or previous_end is None:
            return None
        seconds = call.start_s - previous_end
        if seconds < -0.001:
            report.note(
                "turn starts before the previous one or an awaited sub-agent ended; gap set to 0",
                f"{where} turn {index}",
            )
    kind = call.gap_kind
    if kind is None:
        # agents put reminders behind a tool's result: those make no human turn of it
        roles = (message["role"] for message in reversed(turn.append or ()))
        last = next((role for role in roles if role != "user"), "user")
        kind = "tool" if last == "tool" or index == 0 else "human"  # only a sub-agent's first turn has a gap
    return Gap("tool" if kind == "tool" else "human", round(max(seconds, 0.0), 6))


def _waits(child: Agent, parent: Agent, number: int) -> bool:
    """Whether the parent's next call came after the child's end; known times decide where the source does not."""
    if child.wait is not None:
        return child.wait
    end = _end(child.calls[-1])
    following = parent.calls[number + 1].start_s if number + 1 < len(parent.calls) else None
    child.wait = end is None or following is None or end <= following + 1.0
    return child.wait


def _child_ends(agent: Agent, family: list[Agent]) -> dict[int, list[float]]:
    """By call number, the ends of the children that the agent waited for after it."""
    found: dict[int, list[float]] = {}
    for child in family:
        if child.parent is not None and child.parent[0] == agent.id:
            number = min(child.parent[1], len(agent.calls) - 1)
            end = _end(child.calls[-1])
            if end is not None and _waits(child, agent, number):
                found.setdefault(number, []).append(end)
    return found


def _end(call: Call) -> float | None:
    return call.end_s


def _span(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None or end < start else round(end - start, 6)


def _at_most(value: int | None, limit: int | None) -> int | None:
    return value if value is None or limit is None else min(value, limit)
