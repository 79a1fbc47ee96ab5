"""Which session a request belongs to, and what it changed: pure functions of what was seen before.

A chain is what the trace calls a session: one agent's conversation under one system prompt and tool list.
Candidates are the chains of the same conversation and agent as far as the client tells (`identity`), else all
that no client claimed. The first rule that matches decides:

1. the prompt of a chain again, after a failure or marked as a retry: another attempt;
2. a chain that began as this prompt does and whose model said something that is part of it: its next turn; where part
   of its messages is gone, a rewind, or a fork when the chain's own request was still running;
3. a first user text that a tool call of an earlier answer spelled out: a sub-agent of that turn;
4. the chain's own client and system, fewer messages, and a text that begins a summary: a compaction;
   likewise a client's own conversation whose earlier messages were rewritten;
5. messages of a chain under another system prompt or other tools: a new chain, linked to the turn it left;
6. else a new chain.

Exchanges come in the order in which they ended, so an answer is always known before a request that contains it.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from loadgen.record.hints import gives_task, spawned_tasks, tells_summary
from loadgen.record.identity import Identity
from loadgen.record.store import Entry
from loadgen.trace.model import Message

_KEPT_SPAWNS = 256

Relation = Literal[
    "new", "next", "attempt", "rewind", "compaction", "edited_answer", "fork", "subagent", "prefix_changed"
]


class Asked(msgspec.Struct, kw_only=True):
    """A request as grouping sees it. `keys` are digests of `messages`, `gists` name the answers among them;
    `prefix` is a digest of system and tools."""

    identity: Identity
    prefix: bytes
    keys: list[bytes]
    gists: frozenset[bytes]
    messages: list[Message]
    start_ns: int
    end_ns: int
    retry: int = 0
    utility: str | None = None
    answered: bool = True  # the answer came whole


class Spawn(msgspec.Struct, kw_only=True, eq=False):
    """A tool call whose text may become a sub-agent's first message."""

    text: str
    chain: Chain
    turn: int
    call_id: str
    wait: bool


class Chain(msgspec.Struct, kw_only=True, eq=False):
    """A session as it stands after its last turn. `head` is that turn's prompt and, where there was one, its answer."""

    id: str
    identity: Identity
    prefix: bytes
    agent: str
    parent: Chain | None = None
    parent_turn: int = 0
    prompt: list[bytes] = []
    head: list[bytes] = []
    answers: set[bytes] = set()  # what the model said in this chain, less what the first prompt held already
    given: frozenset[bytes] = (
        frozenset()
    )  # messages of the first prompt: agents put examples of answers there
    first_user: bytes | None = None
    opened: int = 0  # messages of the first prompt
    index: int = -1
    attempt: int = 0
    answered: bool = False
    start_ns: int = 0
    end_ns: int = 0
    children: list[Chain] = []  # awaited ones since the last turn


class Place(msgspec.Struct, kw_only=True):
    """Where a request stands. `keep` and `append_from` count messages; `keep` null means that all are kept."""

    chain: Chain
    relation: Relation
    index: int
    attempt: int = 1
    keep: int | None = None
    append_from: int = 0
    since_ns: int | None = None  # end of what this turn waited for; null when it waited for nothing
    call_id: str | None = None  # of the tool call that spawned this chain
    wait: bool = False


class Grouper:
    """Keeps the chains of one recording. `place` decides, `answered` then moves the chain on."""

    def __init__(self) -> None:
        self._made = 0
        self._by_agent: dict[tuple[str | None, str | None], list[Chain]] = {}
        self._spawns: list[Spawn] = []

    def place(self, asked: Asked) -> Place:
        """Decide where a request stands. Its chain is made when it is new, and not moved yet."""
        identity = asked.identity
        known = self._by_agent.get((identity.conversation, identity.agent), [])
        same = [chain for chain in known if chain.prefix == asked.prefix]
        fresh = not any(message["role"] == "assistant" for message in asked.messages)
        return (
            self._attempt(asked, same, fresh)
            or self._next(asked, same)
            or self._subagent(asked, fresh, known)
            or self._compaction(asked, same)
            or self._rewritten(asked, same, fresh)
            or self._prefix_changed(asked, known, fresh)
            or Place(chain=self._new(asked, "utility" if asked.utility else "main"), relation="new", index=0)
        )

    def answered(self, place: Place, asked: Asked, answer: Entry | None) -> None:
        """Move the chain to this turn. `answer` is null when none came."""
        chain = place.chain
        if chain.index < 0:
            chain.given = asked.gists
            chain.opened = len(asked.keys)
        if answer is not None and answer.gist and answer.gist not in chain.given:
            chain.answers.add(answer.gist)
        chain.prompt = asked.keys
        chain.head = asked.keys if answer is None else [*asked.keys, answer.key]
        if chain.first_user is None:
            chain.first_user = _first_user(asked)
        chain.index, chain.attempt = place.index, place.attempt
        chain.answered = asked.answered
        chain.start_ns, chain.end_ns = asked.start_ns, asked.end_ns
        chain.children = []
        for task in spawned_tasks(answer.message) if answer is not None else ():
            self._spawns.append(
                Spawn(text=task.text, chain=chain, turn=place.index, call_id=task.call_id, wait=task.wait)
            )
        del self._spawns[:-_KEPT_SPAWNS]

    def forget(self, chain: Chain) -> None:
        """Nothing continues this chain any more, and nothing descends from it."""
        self._by_agent[chain.identity.conversation, chain.identity.agent].remove(chain)
        self._spawns = [spawn for spawn in self._spawns if spawn.chain is not chain]

    # the rules

    def _attempt(self, asked: Asked, chains: list[Chain], fresh: bool) -> Place | None:
        for chain in reversed(chains):
            if chain.prompt != asked.keys:
                continue
            claimed = asked.identity.conversation is not None
            if chain.answered and not asked.retry and fresh and not claimed:
                continue  # the same task given again is another session
            if asked.start_ns < chain.end_ns and not asked.retry and not claimed:
                continue
            return Place(
                chain=chain,
                relation="attempt",
                index=chain.index,
                attempt=chain.attempt + 1,
                since_ns=chain.end_ns,
                append_from=len(asked.keys),
            )
        return None

    def _next(self, asked: Asked, chains: list[Chain]) -> Place | None:
        best: Chain | None = None
        shared = 0
        for chain in reversed(chains):
            common = _common(chain.head, asked.keys)
            if common > shared and _continues(chain, common, asked):
                best, shared = chain, common
        if best is None:
            return None
        overlaps = asked.start_ns < best.end_ns
        if shared < len(best.head) and overlaps:
            chain = self._new(asked, best.agent)
            return self._linked(chain, "fork", best, max(best.index - 1, 0), asked)
        relation: Relation = "next"
        if shared < len(best.head):
            appended = asked.messages[shared:]
            if shared == len(best.prompt):
                relation = "edited_answer"
            elif len(asked.keys) < len(best.head) and tells_summary(appended):
                relation = "compaction"
            else:
                relation = "rewind"
        return self._moved(best, relation, shared, asked)

    def _subagent(self, asked: Asked, fresh: bool, known: list[Chain]) -> Place | None:
        identity = asked.identity
        spawn = self._spawned(asked) if fresh else None
        if spawn is not None:
            chain = self._new(asked, "sub")
            return self._linked(chain, "subagent", spawn.chain, spawn.turn, asked, spawn)
        if known or identity.agent is None or identity.conversation is None:
            return None
        above = self._by_agent.get((identity.conversation, identity.parent or None), [])
        parent = self._last_idle(asked, above)
        if parent is None:
            return None
        return self._linked(self._new(asked, "sub"), "subagent", parent, parent.index, asked)

    def _spawned(self, asked: Asked) -> Spawn | None:
        conversation = asked.identity.conversation
        for spawn in reversed(self._spawns):
            if spawn.chain.identity.conversation == conversation and gives_task(asked.messages, spawn.text):
                self._spawns.remove(spawn)
                return spawn
        return None

    def _compaction(self, asked: Asked, chains: list[Chain]) -> Place | None:
        first = _first_user(asked)
        for chain in sorted(chains, key=lambda chain: -chain.end_ns):
            if chain.agent == "utility" or asked.utility or asked.start_ns < chain.end_ns:
                continue
            if len(asked.keys) >= len(chain.head):
                continue
            # but agents open every session alike: with the same examples, or the same first words about the place
            begins_alike = (
                first is not None
                and first == chain.first_user
                and len(asked.keys) > chain.opened
                and not chain.given
            )
            if begins_alike or tells_summary(asked.messages):
                return self._moved(chain, "compaction", _common(chain.head, asked.keys), asked)
        return None

    def _rewritten(self, asked: Asked, chains: list[Chain], fresh: bool) -> Place | None:
        """A client that names its conversation sent a history that shares no answer with what we saw."""
        if fresh or asked.identity.conversation is None or asked.utility:
            return None
        chain = self._last_idle(asked, chains)
        if chain is None:
            return None
        return self._moved(chain, "rewind", _common(chain.head, asked.keys), asked)

    def _prefix_changed(self, asked: Asked, known: list[Chain], fresh: bool) -> Place | None:
        best: Chain | None = None
        shared = 0
        for chain in reversed(known):
            common = _common(chain.head, asked.keys)
            if common > shared and _continues(chain, common, asked):
                best, shared = chain, common
        if best is None and asked.identity.conversation is not None and not asked.utility:
            best = self._last_idle(asked, known) if not fresh or tells_summary(asked.messages) else None
        if best is None:
            return None
        chain = self._new(asked, "utility" if asked.utility else best.agent)
        return self._linked(chain, "prefix_changed", best, best.index, asked)

    @staticmethod
    def _last_idle(asked: Asked, chains: list[Chain]) -> Chain | None:
        """The chain that ended last before this request, utility calls aside."""
        idle = [c for c in chains if c.agent != "utility" and c.end_ns <= asked.start_ns]
        return max(idle, key=lambda chain: chain.end_ns, default=None)

    # what they make

    def _new(self, asked: Asked, agent: str) -> Chain:
        identity = asked.identity
        self._made += 1
        chain = Chain(id=f"s{self._made}", identity=identity, prefix=asked.prefix, agent=agent)
        self._by_agent.setdefault((identity.conversation, identity.agent), []).append(chain)
        return chain

    def _moved(self, chain: Chain, relation: Relation, shared: int, asked: Asked) -> Place:
        ends = [chain.end_ns, *(child.end_ns for child in chain.children if child.end_ns <= asked.start_ns)]
        return Place(
            chain=chain,
            relation=relation,
            index=chain.index + 1,
            keep=None if shared == len(chain.head) else shared,
            append_from=shared,
            since_ns=max(ends),
        )

    def _linked(
        self,
        chain: Chain,
        relation: Relation,
        parent: Chain,
        turn: int,
        asked: Asked,
        spawn: Spawn | None = None,
    ) -> Place:
        wait = spawn.wait if spawn else False
        chain.parent, chain.parent_turn = parent, turn
        if wait:
            parent.children.append(chain)
        return Place(
            chain=chain,
            relation=relation,
            index=0,
            since_ns=min(parent.end_ns, asked.start_ns),
            call_id=spawn.call_id if spawn else None,
            wait=wait,
        )


def _common(a: list[bytes], b: list[bytes]) -> int:
    """Length of the common beginning: equality of slices is quick, so bisect."""
    low, high = 0, min(len(a), len(b))
    while low < high:
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def _continues(chain: Chain, common: int, asked: Asked) -> bool:
    """Whether a prompt that begins as the chain did (`common` messages) continues it: something that the model said in
    this chain is part of it; or it holds the whole of the chain's last prompt and then the client's own version of the
    answer, or anything at all when no answer came whole."""
    if not chain.answers.isdisjoint(asked.gists):
        return True
    if common < len(chain.prompt):
        return False
    behind = asked.messages[common : common + 1]
    return not chain.answered or any(message["role"] == "assistant" for message in behind)


def _first_user(asked: Asked) -> bytes | None:
    roles = zip(asked.messages, asked.keys, strict=True)
    return next((key for message, key in roles if message["role"] == "user"), None)
