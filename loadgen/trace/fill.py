"""Text for traces without any: messages whose lengths and shared beginnings are the trace's.

Each turn owns what its prompt adds to an earlier one; that run of tokens is cut where later prompts leave it, and
every piece is a message. Pieces that two prompts share are the same messages, so a prefix cache sees exactly the
sharing of the trace, sub-agents and common tool prefixes included. What a turn adds begins with the previous
answer, where it continues the session's last prompt.

Lengths are of content; `per_message` and `per_prompt` tokens of the chat template are taken off, if they are known.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from loadgen.errors import InputError
from loadgen.outfile import refuse_input
from loadgen.trace.formats.base import Report
from loadgen.trace.formats.build import common
from loadgen.trace.model import Header, Message, Session, Source, Turn
from loadgen.trace.reader import TraceFile
from loadgen.trace.tree import PrefixTree
from loadgen.trace.writer import TraceWriter

NewText = Callable[[int, int, int], str]
"""(session number, piece number, tokens) -> text of exactly that many tokens; asked for in order within a session."""


@dataclass(frozen=True, slots=True)
class Template:
    """Tokens that the chat template adds to each message and to each prompt."""

    per_message: int = 0
    per_prompt: int = 0


def fill(
    trace: TraceFile,
    out: Path,
    new_text: NewText,
    *,
    template: Template = Template(),
    tokenizer: str | None = None,
) -> Report:
    """Write `trace` (fidelity `blocks` or `lengths`) with text to `out`, as fidelity `messages`.

    `content_tokens` of each turn is what its messages hold; it differs from the trace's length by the template's
    share, and where a piece is too short for a message (noted). Prompts of `lengths` traces share nothing.
    Raises InputError when the trace has text already, or when `new_text` runs out.
    """
    refuse_input(out, trace.files())
    if trace.header.fidelity not in ("blocks", "lengths"):
        raise InputError(f"{trace.path} has text already (fidelity {trace.header.fidelity})")
    report = Report()
    source = trace.header.source
    header = Header(
        version=1,
        name=trace.header.name,
        source=Source(
            format=source.format if source else "unknown",
            tool="loadgen trace fill",
            licence=source.licence if source else None,
        ),
        fidelity="messages",
        tokenizer=tokenizer,
        made={"filled": trace.sha256, "per_message": template.per_message, "per_prompt": template.per_prompt},
    )
    pieces = _Pieces(trace, new_text, template, report)
    with TraceWriter(out, header) as writer:
        for number, session in enumerate(trace.sessions):
            writer.session(_bare(session))
            _session(writer, session, trace.turns(session.id), number, pieces)
            writer.end(session.id)
            pieces.leave(number)
    return report


def _bare(session: Session) -> Session:
    return Session(
        id=session.id,
        parent=session.parent,
        group=session.group,
        start_s=session.start_s,
        agent=session.agent,
    )


def _session(writer: TraceWriter, session: Session, turns: list[Turn], number: int, pieces: _Pieces) -> None:
    prompt: list[Message] = []
    base: list[Message] = []
    answer: Message | None = None
    index = -1
    for place, turn in enumerate(turns):
        if turn.index != index:
            base = prompt if answer is None else [*prompt, answer]
            index = turn.index
        prompt = pieces.prompt(session.id, place)
        answer = pieces.answer(session.id, place)
        shared = common(base, prompt)
        writer.turn(
            Turn(
                session=turn.session,
                index=turn.index,
                attempt=turn.attempt,
                keep=None if shared == len(base) else shared,
                append=prompt[shared:],
                answer=answer,
                gap=turn.gap,
                content_tokens=sum(pieces.tokens[id(message)] for message in prompt),
                output_tokens=turn.output_tokens,
                stop=turn.stop,
                seen=turn.seen,
            )
        )


class _Pieces:
    """Messages by the node that owns them, made when first asked for and dropped when nobody will ask again."""

    def __init__(self, trace: TraceFile, new_text: NewText, template: Template, report: Report) -> None:
        self.tokens: dict[int, int] = {}  # by identity of a message: its content's tokens
        self._new_text, self._template, self._report = new_text, template, report
        self._tree = PrefixTree(trace, alone=True)
        self._made: dict[
            int, list[tuple[int, Message]]
        ] = {}  # by node: (end in tokens, message) from `depth` on
        self._answers: dict[int, Message] = {}
        self._counters: dict[int, int] = {}  # pieces made so far, by session
        nodes = len(self._tree.depth)
        self._session_of, self._output = array("L", [0]) * nodes, array("Q", [0]) * nodes
        # the node that a node goes on from, all of it, and the node of the answer between them; -1: none
        self._before, self._answered = array("q", [-1]) * nodes, array("q", [-1]) * nodes
        self._note_turns(trace)
        self._cuts: dict[int, set[int]] = {}
        self._lasting: set[int] = set()  # nodes of which another session takes pieces
        self._note_sharing()

    def _note_turns(self, trace: TraceFile) -> None:
        tree = self._tree
        for number, session in enumerate(trace.sessions):
            first = answered = -1  # of the index before
            begun = -1
            for place, turn in enumerate(trace.turns(session.id)):
                node = tree.node(session.id, place)
                self._session_of[node] = number
                self._output[node] = turn.output_tokens or 0
                if turn.attempt == 1:
                    first, begun = begun, node
                    if first >= 0 and tree.parent[node] == first and tree.depth[node] == tree.length[first]:
                        self._before[node], self._answered[node] = first, answered
                answered = node
                if tree.same_tail[node]:  # the whole prompt is an earlier one
                    self._before[node], self._answered[node] = tree.tail_source(node), -1

    def _note_sharing(self) -> None:
        tree = self._tree
        for node in range(len(tree.depth)):
            owner = tree.parent[node]
            if owner >= 0 and self._before[node] < 0:
                self._cuts.setdefault(owner, set()).add(min(tree.depth[node], tree.length[owner]) * tree.unit)
            while owner >= 0 and owner not in self._lasting:
                if self._session_of[owner] != self._session_of[node]:
                    self._lasting.add(owner)
                owner = tree.parent[owner]

    def leave(self, number: int) -> None:
        """The session is written: forget what no other takes from it."""
        for node in [
            n
            for n in {*self._made, *self._answers}
            if self._session_of[n] == number and n not in self._lasting
        ]:
            for message in [m for _, m in self._made.pop(node, ())] + [self._answers.pop(node, {})]:
                self.tokens.pop(id(message), None)

    def prompt(self, session: str, place: int) -> list[Message]:
        """All messages of a prompt, its own last."""
        tree, node = self._tree, self._tree.node(session, place)
        chain: list[tuple[int, int]] = []  # (owner, end in tokens), the prompt's own first
        end, owner = self._end(node), node
        while owner >= 0 and end > 0:
            chain.append((owner, end))
            before = self._before[owner]
            if before >= 0:
                owner, end = before, self._end(before)
            else:
                end, owner = tree.depth[owner] * tree.unit, tree.parent[owner]
        messages = [
            message for owner, end in reversed(chain) for upto, message in self._own(owner) if upto <= end
        ]
        if not messages:
            self._report.note("prompt of no tokens; one token stands for it", session)
            messages = [self._message("user", node, 1)]
        return messages

    def answer(self, session: str, place: int) -> Message | None:
        """The recorded answer of a turn, null where the trace tells no length."""
        node = self._tree.node(session, place)
        if node not in self._answers and self._output[node]:
            self._answers[node] = self._message("assistant", node, self._output[node])
        return self._answers.get(node)

    def _end(self, node: int) -> int:
        return self._tree.length[node] * self._tree.unit + self._tree.tail[node]

    def _own(self, node: int) -> list[tuple[int, Message]]:
        """The messages that a node owns: the previous answer where it goes on from it, then what is new, cut."""
        if node in self._made:
            return self._made[node]
        template = self._template
        found: list[tuple[int, Message]] = []
        begin, end = self._tree.depth[node] * self._tree.unit, self._end(node)
        if self._before[node] >= 0:
            begin = self._end(self._before[node])
        wanted = self._cuts.get(node, set())
        answer = self._answers.get(self._answered[node])
        if answer is not None:
            carried = begin + self._output[self._answered[node]] + template.per_message
            if carried <= end and not any(begin < cut < carried for cut in wanted):
                begin = carried
                found.append((begin, answer))
            else:
                self._report.note(
                    "answer that the next prompt does not carry as a whole; other text stands there"
                )
        cuts = sorted({cut for cut in wanted if begin < cut < end} | ({end} if end > begin else set()))
        for cut in cuts:
            # the first piece of a root that others share is what all have in common: system and tools
            role = "system" if begin == 0 and len(cuts) > 1 else "user"
            found.append(
                (
                    cut,
                    self._message(
                        role,
                        node,
                        cut - begin - template.per_message - (template.per_prompt if begin == 0 else 0),
                    ),
                )
            )
            begin = cut
        self._made[node] = found
        return found

    def _message(self, role: str, node: int, tokens: int) -> Message:
        if tokens < 1:
            self._report.note("piece shorter than the template's share; one token stands for it")
            tokens = 1
        session = self._session_of[node]
        number = self._counters.get(session, 0)
        self._counters[session] = number + 1
        message: Message = {"role": role, "content": self._new_text(session, number, tokens)}
        self.tokens[id(message)] = tokens
        return message
