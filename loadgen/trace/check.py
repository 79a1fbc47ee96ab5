"""What must hold between the records of a trace, checked as a stream.

`Checker.add` takes the records in file order, `Checker.finish` checks what only the whole file can show: parents
and block sources that exist and form no cycle. Each problem is one sentence; the caller knows file and line.
Memory: a few integers a session, and four a turn with block sources.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from typing import Any

from loadgen.trace.model import VERSION, Blob, Blocks, End, Header, Message, Record, Session, Turn

ROLES = frozenset(("system", "developer", "user", "assistant", "tool"))


class TraceProblem(ValueError):
    """One broken rule, as a sentence without file and line."""


class _State:
    __slots__ = ("answered", "attempts", "base", "blocks", "ended", "index", "length", "number", "parent")

    def __init__(self, number: int, blocks: bool) -> None:
        self.number = number
        self.parent: tuple[str, int] | None = None
        self.index = -1
        self.attempts = 0  # a bit set: bit a is attempt a+1, of the current index
        self.base = 0  # messages of P(k-1) and its answer
        self.length = 0  # messages of P(k)
        self.answered = False
        self.ended = False
        self.blocks: array[int] | None = (
            array("Q") if blocks else None
        )  # whole blocks of prompt and answer, per index


class Checker:
    """Feed it every record, in order, then call `finish`. Raises TraceProblem at the first broken rule."""

    def __init__(self) -> None:
        self.header: Header | None = None
        self.refs: set[str] = set()
        self._states: dict[str, _State] = {}
        self._numbers: dict[
            str, int
        ] = {}  # also of sessions that a block source names before they are declared
        # turns whose block source is another session's: session, index, source session, source index, reuse
        self._links = array("Q")

    def add(self, record: Record) -> None:
        if isinstance(record, Turn):
            self._turn(record)
        elif self.header is None:
            if not isinstance(record, Header):
                raise TraceProblem('the first record must be the header, {"type":"trace","version":1,…}')
            self._header(record)
        elif isinstance(record, Session):
            self._session(record)
        elif isinstance(record, Blob):
            if record.file is None and record.json is None:
                raise TraceProblem("the blob has neither `json` nor `file`")
            if record.file is not None and record.json is not None:
                raise TraceProblem("the blob has both `json` and `file`")
            self.refs.add(f"sha256:{record.sha256}")
        elif isinstance(record, End):
            state = self._state(record.session)
            state.ended = True
        else:
            raise TraceProblem("there is a second header; a trace has one, at its top")

    def open_sessions(self) -> list[str]:
        """Sessions without an `end` record: a recording that was cut, or that goes on."""
        return [name for name, state in self._states.items() if not state.ended]

    def turn_count(self, session: str) -> int:
        """Turns (indexes) of a session so far."""
        return self._states[session].index + 1

    def finish(self) -> None:
        if self.header is None:
            raise TraceProblem("the file is empty; a trace begins with its header")
        self._parents()
        self._block_sources()

    # one record

    def _header(self, header: Header) -> None:
        if header.version != VERSION:
            raise TraceProblem(
                f"the trace has version {header.version}; this loadgen reads version {VERSION}"
            )
        if header.fidelity == "blocks" and not header.block_size:
            raise TraceProblem("a trace with fidelity `blocks` needs `block_size` in its header")
        self.header = header

    def _session(self, session: Session) -> None:
        if session.id in self._states:
            raise TraceProblem(f"session {session.id!r} is declared twice")
        for name, ref in (("system", session.system), ("tools", session.tools)):
            if ref is not None and ref not in self.refs:
                raise TraceProblem(
                    f"session {session.id!r}: no blob record before this line has the digest of its `{name}`"
                )
        assert self.header is not None
        state = _State(self._number(session.id), self.header.fidelity == "blocks")
        if session.parent is not None:
            state.parent = (session.parent.session, session.parent.turn)
        self._states[session.id] = state

    def _state(self, session: str) -> _State:
        state = self._states.get(session)
        if state is None:
            raise TraceProblem(f"there is no session record {session!r} before this line")
        if state.ended:
            raise TraceProblem(f"session {session!r} has ended before this line")
        return state

    def _turn(self, turn: Turn) -> None:
        if self.header is None:
            raise TraceProblem('the first record must be the header, {"type":"trace","version":1,…}')
        state = self._state(turn.session)
        where = f"turn {turn.index} of session {turn.session!r}"
        bit = 1 << (turn.attempt - 1)
        if turn.index == state.index:
            if state.attempts & bit:
                raise TraceProblem(f"{where}: attempt {turn.attempt} is there twice")
            state.attempts |= bit
        elif turn.index == state.index + 1:
            state.index = turn.index
            state.attempts = bit
            state.base = state.length + state.answered
        else:
            raise TraceProblem(
                f"{where}: expected index {state.index + 1} here; turns stand in order and none is left out"
            )
        if turn.index == 0 and turn.gap is not None and state.parent is None:
            raise TraceProblem(f"{where}: the first turn of a session without a parent has no `gap`")
        if (
            turn.cached_tokens is not None
            and turn.input_tokens is not None
            and turn.cached_tokens > turn.input_tokens
        ):
            raise TraceProblem(
                f"{where}: cached_tokens {turn.cached_tokens} exceeds input_tokens {turn.input_tokens}"
            )
        if (turn.reasoning_tokens or 0) > (turn.output_tokens if turn.output_tokens is not None else 2**53):
            raise TraceProblem(
                f"{where}: reasoning_tokens {turn.reasoning_tokens} exceeds output_tokens {turn.output_tokens}"
            )
        fidelity = self.header.fidelity
        if fidelity == "blocks":
            self._blocks(turn, state, where)
        elif turn.blocks is not None:
            raise TraceProblem(f"{where}: `blocks` stands only in a trace with fidelity `blocks`")
        elif fidelity == "lengths":
            if turn.append is not None:
                raise TraceProblem(f"{where}: `append` has no place in a trace with fidelity `lengths`")
            if turn.input_tokens is None:
                raise TraceProblem(f"{where}: `input_tokens` is missing")
        else:
            self._messages(turn, state, where)

    def _messages(self, turn: Turn, state: _State, where: str) -> None:
        if turn.append is None:
            if turn.attempt == 1:
                raise TraceProblem(f"{where}: `append` is missing")
        else:
            if turn.keep is not None and turn.keep > state.base:
                raise TraceProblem(
                    f"{where}: keep {turn.keep} exceeds the {state.base} messages before this turn"
                )
            state.length = (state.base if turn.keep is None else turn.keep) + len(turn.append)
            if state.length == 0:
                raise TraceProblem(f"{where}: the prompt has no message")
            self._message_list(turn.append, where)
        if turn.answer is not None:
            self._message_list((turn.answer,), where)
            if turn.answer["role"] != "assistant":
                raise TraceProblem(
                    f"{where}: the role of `answer` is {turn.answer['role']!r}, expected 'assistant'"
                )
        state.answered = turn.answer is not None

    def _message_list(self, messages: Iterable[Message], where: str) -> None:
        for message in messages:
            role = message.get("role")
            if not isinstance(role, str) or role not in ROLES:
                raise TraceProblem(
                    f"{where}: a message has the role {role!r}, expected one of {', '.join(sorted(ROLES))}"
                )
            content: Any = message.get("content")
            if content is None or isinstance(content, str | list):
                continue
            ref = content.get("blob") if isinstance(content, dict) else None
            if not isinstance(ref, str):
                raise TraceProblem(
                    f"{where}: `content` must be text, null, a list of parts or a blob reference"
                )
            if ref not in self.refs:
                raise TraceProblem(f"{where}: no blob record before this line is called {ref}")

    def _blocks(self, turn: Turn, state: _State, where: str) -> None:
        assert self.header is not None
        assert self.header.block_size is not None
        assert state.blocks is not None
        blocks, size = turn.blocks, self.header.block_size
        if turn.append is not None:
            raise TraceProblem(f"{where}: `append` has no place in a trace with fidelity `blocks`")
        if blocks is None:
            if turn.attempt == 1:
                raise TraceProblem(f"{where}: `blocks` is missing")
            return
        if blocks.tail_tokens >= size:
            raise TraceProblem(
                f"{where}: tail_tokens {blocks.tail_tokens} must be below the block size {size}"
            )
        tokens = (blocks.reuse + blocks.new) * size + blocks.tail_tokens
        if turn.input_tokens is not None and turn.input_tokens != tokens:
            raise TraceProblem(
                f"{where}: input_tokens {turn.input_tokens} is not what its blocks hold, {tokens}"
            )
        self._source(turn, blocks, state, where)
        whole = (tokens + (turn.output_tokens or 0)) // size
        if len(state.blocks) == turn.index:
            state.blocks.append(whole)
        else:
            state.blocks[turn.index] = whole

    def _source(self, turn: Turn, blocks: Blocks, state: _State, where: str) -> None:
        assert state.blocks is not None
        if blocks.from_ is None or blocks.from_[0] == turn.session:
            index = turn.index - 1 if blocks.from_ is None else blocks.from_[1]
            if index >= turn.index:
                raise TraceProblem(f"{where}: its blocks come from turn {index}, which is not an earlier one")
            there = state.blocks[index] if index >= 0 else 0
            if blocks.reuse > there:
                raise TraceProblem(f"{where}: reuses {blocks.reuse} blocks where the source has {there}")
        else:
            # the source may stand later in the file (it was earlier in time): settled in finish()
            self._links.extend(
                (state.number, turn.index, self._number(blocks.from_[0]), blocks.from_[1], blocks.reuse)
            )

    def _number(self, session: str) -> int:
        return self._numbers.setdefault(session, len(self._numbers))

    # the whole file

    def _parents(self) -> None:
        settled: set[str] = set()
        for name, state in self._states.items():
            chain: list[str] = []
            while state.parent is not None and name not in settled:
                if name in chain:
                    raise TraceProblem(
                        f"sessions are each other's parents: {' -> '.join([*chain[chain.index(name) :], name])}"
                    )
                chain.append(name)
                parent, turn = state.parent
                above = self._states.get(parent)
                if above is None:
                    raise TraceProblem(
                        f"session {name!r} has the parent {parent!r}, which is not in the file"
                    )
                if turn > above.index:
                    raise TraceProblem(
                        f"session {name!r} starts at turn {turn} of {parent!r}, which has {above.index + 1} turns"
                    )
                name, state = parent, above
            settled.update(chain)

    def _block_sources(self) -> None:
        if not self._links:
            return
        names = list(self._numbers)
        links: dict[int, list[tuple[int, int, int]]] = {}
        flat = self._links
        for i in range(0, len(flat), 5):
            number, index, source, source_index, reuse = flat[i : i + 5]
            state = self._states.get(names[source])
            where = f"turn {index} of session {names[number]!r}"
            if state is None or source_index > state.index:
                raise TraceProblem(
                    f"{where}: its blocks come from turn {source_index} of {names[source]!r}, which is not in the file"
                )
            assert state.blocks is not None
            if reuse > state.blocks[source_index]:
                raise TraceProblem(
                    f"{where}: reuses {reuse} blocks where the source has {state.blocks[source_index]}"
                )
            links.setdefault(number, []).append((index, source, source_index))
        self._no_cycle(links, names)

    @staticmethod
    def _no_cycle(links: dict[int, list[tuple[int, int, int]]], names: list[str]) -> None:
        """A turn waits for the turn before it and for its block source; play all sessions until nothing moves."""
        position = dict.fromkeys(links, 0)
        waiting: dict[int, list[int]] = {}
        ready = list(links)
        blocked = len(ready)
        while ready:
            session = ready.pop()
            mine, before = links[session], position[session]
            while position[session] < len(mine):
                _, source, source_index = mine[position[session]]
                behind = source in links and position[source] < len(links[source])
                if behind and links[source][position[source]][0] <= source_index:
                    waiting.setdefault(source, []).append(session)
                    break
                position[session] += 1
            else:
                blocked -= 1
            if position[session] > before:
                ready.extend(waiting.pop(session, ()))
        if blocked:
            stuck = sorted(names[s] for s in links if position[s] < len(links[s]))
            raise TraceProblem(f"block sources form a cycle among sessions {', '.join(map(repr, stuck[:5]))}")
