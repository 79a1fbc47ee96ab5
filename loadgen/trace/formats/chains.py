"""Calls without session ids → conversations, by their content (trace formats that log single requests).

A call continues a conversation when it begins with that conversation's last prompt, or with a part of it that ends
in an assistant message, and when that conversation was not busy at the time. What remains of a family with a common
key (a conversation or trace id) becomes sub-agents: of the call that spelled out their task, else of the first
conversation, by time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

import orjson

from loadgen.trace.formats.base import Agent, Call
from loadgen.trace.formats.messages import text_of
from loadgen.trace.prefix import message_digest

_TASK = 12
"""Characters of a text that may be a sub-agent's task; shorter ones occur by chance."""


@dataclass(slots=True)
class Logged:
    """One logged call with what its request says of system and tools."""

    call: Call
    key: str  # conversation, trace or session id; "" where there is none
    system: object = None
    tools: object = None
    label: str = "main"


@dataclass(slots=True)
class _Chain:
    agent: Agent
    digests: list[bytes] = field(default_factory=list)


def families(logged: Iterable[Logged], name: str) -> Iterator[list[Agent]]:
    """Group by key, then by content. Calls are taken in order of their start; `name` stands for an absent key."""
    by_key: dict[str, list[Logged]] = {}
    for entry in logged:
        by_key.setdefault(entry.key, []).append(entry)
    for key, entries in by_key.items():
        entries.sort(key=lambda entry: entry.call.start_s if entry.call.start_s is not None else 0.0)
        chains = _chains(entries, key or name)
        if key:
            yield _family(chains)
        else:
            for chain in chains:
                yield [chain.agent]


def _chains(entries: list[Logged], name: str) -> list[_Chain]:
    chains: list[_Chain] = []
    ends: dict[bytes, list[_Chain]] = {}  # digest of a prompt, or of one up to an assistant message
    for entry in entries:
        digests, stops = _digests(entry)
        chain = _continued(entry.call, digests, ends)
        if chain is None:
            agent = Agent(id=name if not chains else f"{name}/{len(chains)}", calls=[], kind=entry.label)
            agent.system, agent.tools = entry.system, entry.tools
            chain = _Chain(agent)
            chains.append(chain)
        chain.agent.calls.append(entry.call)
        for place in {*stops, len(digests) - 1}:
            if chain not in ends.setdefault(digests[place], []):
                ends[digests[place]].append(chain)
    return chains


def _digests(entry: Logged) -> tuple[list[bytes], list[int]]:
    """Chain digests of the prompt, and the places of its assistant messages."""
    last = hashlib.blake2b(
        repr((entry.system, entry.tools)).encode("utf-8", "replace"), digest_size=16
    ).digest()
    digests, stops = [], []
    for place, message in enumerate(entry.call.prompt or ()):
        last = hashlib.blake2b(last + message_digest(message), digest_size=16).digest()
        digests.append(last)
        if message["role"] == "assistant":
            stops.append(place)
    return digests or [last], stops


def _continued(call: Call, digests: list[bytes], ends: dict[bytes, list[_Chain]]) -> _Chain | None:
    for place in range(len(digests) - 1, -1, -1):
        for chain in reversed(ends.get(digests[place], ())):
            end = chain.agent.calls[-1].end_s
            if call.start_s is None or end is None or end <= call.start_s + 1e-3:
                return chain
    return None


def _family(chains: list[_Chain]) -> list[Agent]:
    """The first conversation that is no utility call is the main one; parents come first."""
    agents = [chain.agent for chain in chains]
    main = next((agent for agent in agents if agent.kind != "utility"), agents[0])
    if main is not agents[0]:
        main.id, agents[0].id = agents[0].id, main.id
        agents.remove(main)
        agents.insert(0, main)
    for place, agent in enumerate(agents[1:], 1):
        if (spawn := _spawned(agent, agents[:place])) is not None:
            agent.parent, agent.call_id = spawn
            agent.kind = "sub"
            continue
        start = agent.calls[0].start_s
        ended = [
            i
            for i, call in enumerate(main.calls)
            if start is not None and call.end_s is not None and call.end_s <= start + 1e-3
        ]
        if ended:
            agent.parent = (main.id, ended[-1])
        else:
            agent.group = main.id
    return agents


def _spawned(child: Agent, others: list[Agent]) -> tuple[tuple[str, int], str] | None:
    """The call whose tool call spelled out the child's task, and that tool call's id: the last one before it."""
    prompt, start = child.calls[0].prompt or [], child.calls[0].start_s
    task = next((text_of(m["content"]) for m in reversed(prompt) if m["role"] == "user"), "")
    found: list[tuple[float, tuple[str, int], str]] = []
    for agent in others:
        for number, call in enumerate(agent.calls):
            asked = call.start_s if call.start_s is not None else 0.0
            if start is not None and asked > start:
                continue
            for tool in (call.answer or {}).get("tool_calls", ()):
                if _tells(tool["function"]["arguments"], task):
                    found.append((asked, (agent.id, number), tool["id"]))
    return max(found)[1:] if found else None


def _tells(arguments: str, task: str) -> bool:
    """Whether one of the arguments is what the task ends with."""
    try:
        values = orjson.loads(arguments)
    except orjson.JSONDecodeError:
        return False
    texts = values.values() if isinstance(values, dict) else ()
    return any(
        isinstance(text, str) and len(text) >= _TASK and task.rstrip().endswith(text.strip())
        for text in texts
    )
