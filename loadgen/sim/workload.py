"""A trace as the what-if plays it: for every turn its length, its gap and the turn that it continues."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from loadgen.errors import InputError
from loadgen.sim.streams import Stream
from loadgen.trace.model import Session
from loadgen.trace.reader import TraceFile
from loadgen.trace.tree import PrefixTree

Answers = Literal["live", "recorded"]
_DEFAULT_OUTPUT = 128  # tokens where neither the trace nor the user says how many


@dataclass(slots=True)
class PlannedTurn:
    """`shared` tokens of the prompt are those of turn `parent` (a node of the tree; -1: none)."""

    node: int
    parent: int
    shared: int
    prompt: int
    output: int
    gap_s: float
    extends: bool  # holds its parent's whole prompt


@dataclass(slots=True)
class PlannedSession:
    name: str
    start_s: float
    turns: list[PlannedTurn]
    children: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)  # by turn: (session, awaited)
    root: bool = True


class Workload:
    """All sessions of a trace. Raises InputError for a trace without prefixes or without a turn."""

    def __init__(
        self,
        trace: TraceFile,
        *,
        output: int | None = None,
        gap_scale: float = 1.0,
        gap_cap_s: float | None = None,
    ) -> None:
        tree = PrefixTree(trace)
        self.sessions: list[PlannedSession] = []
        numbers = {session.id: number for number, session in enumerate(trace.sessions)}
        for session in trace.sessions:
            self.sessions.append(PlannedSession(session.id, session.start_s, [], root=session.parent is None))
        unit = tree.unit
        for session in trace.sessions:
            planned = self.sessions[numbers[session.id]]
            for place, turn in enumerate(trace.turns(session.id)):
                node = tree.node(session.id, place)
                gap_s = 0.0 if turn.gap is None else turn.gap.s * gap_scale
                parent = tree.parent[node]
                planned.turns.append(
                    PlannedTurn(
                        node,
                        parent,
                        tree.depth[node] * unit,
                        max(1, tree.length[node] * unit + tree.tail[node]),
                        output or turn.output_tokens or _DEFAULT_OUTPUT,
                        gap_s if gap_cap_s is None else min(gap_s, gap_cap_s),
                        parent >= 0 and tree.depth[node] >= tree.length[parent],
                    )
                )
            _adopt(self.sessions, numbers, session)
        self.turns = sum(len(session.turns) for session in self.sessions)
        self.roots = [number for number, session in enumerate(self.sessions) if session.root]
        if not self.turns or not self.roots:
            raise InputError(f"{trace.path} has no turn to play")


def _adopt(sessions: list[PlannedSession], numbers: dict[str, int], session: Session) -> None:
    parent = session.parent
    if parent is not None:
        sessions[numbers[parent.session]].children.setdefault(parent.turn, []).append(
            (numbers[session.id], parent.wait)
        )


class Streams:
    """Token streams of one copy of a workload, made when they are first asked for.

    `live`: the client sends back what the model generated, so its KV is reused. `recorded`: it sends what the
    trace holds, and the generated tokens' KV is never asked for again.
    """

    def __init__(self, workload: Workload, answers: Answers) -> None:
        self._live = answers == "live"
        self._turns = {turn.node: turn for session in workload.sessions for turn in session.turns}
        self._made: dict[int, Stream] = {}
        self._tip: dict[Stream, int] = {}  # the turn that a stream was last grown by

    def of(self, turn: PlannedTurn) -> tuple[Stream, Stream]:
        """(stream of the prompt, stream of prompt and answer)."""
        stream = self._prompt(turn)
        return stream, stream if self._live else Stream(stream, turn.prompt)

    def _prompt(self, turn: PlannedTurn) -> Stream:
        found = self._made.get(turn.node)
        if found is not None:
            return found
        if turn.parent < 0:
            stream = Stream()
        else:
            before = self._turns[turn.parent]
            above = self._prompt(before)
            if turn.extends and self._tip.get(above) == turn.parent:
                stream = above
            elif turn.extends:
                stream = Stream(above, before.prompt + (before.output if self._live else 0))
            else:
                stream = Stream(above, turn.shared)
        self._made[turn.node] = stream
        self._tip[stream] = turn.node
        return stream
