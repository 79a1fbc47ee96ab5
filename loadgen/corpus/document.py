"""Contexts as one document: everything that an agent has read, in one user message."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from loadgen.corpus.agent import Agent, session_digest, tool_line
from loadgen.corpus.composed import Composed, Conversation, Rendering, Shared, exactly
from loadgen.corpus.exact import Filler, Piece


class DocumentComposer:
    """Makes the text of one context of `tokens` tokens, the template of `rendering` included."""

    suffix = ".txt"

    def __init__(
        self,
        filler: Filler,
        agent: Agent,
        *,
        seed: int,
        tokens: int,
        rendering: Rendering | None = None,
    ) -> None:
        self._filler = filler
        self._agent = agent
        self._seed = seed
        self._tokens = tokens
        self._rendering = rendering
        self._sections = _fitting(_sections(agent), filler, tokens // 4)
        self._overhead = rendering.overhead(conversation("x")) if rendering else 0

    def compose(self, index: int, shared: Shared | None, files: Iterator[Piece]) -> Composed | None:
        """Context `index` with `files` in this order; None when they are too few."""
        digest = session_digest(self._seed, index)
        opening = Piece("", f"{digest} is the id of this session. Files of a repository follow.\n")
        if shared is None:
            front = [opening, *self._sections]
        else:
            front = [Piece("", shared.text), opening]

        def once(files: Iterator[Piece], tokens: int, skip: int) -> Composed | None:
            content = tokens - self._overhead
            filled = self._filler.fill(chain(front, files), content, skip=skip)
            if filled is None:
                return None
            text = filled.text
            return Composed(text.encode(), content, filled.front, _files(filled.used), conversation(text))

        return exactly(self._tokens, files, once, self._rendering)

    def share(self, group: str, tokens: int, files: Iterator[Piece]) -> Shared | None:
        """The first `tokens` tokens of all contexts of `group`: agent, tree, then files; None when they are too few."""
        opening = Piece("", f"{group} is what these sessions have in common.\n")
        filled = self._filler.fill(chain([opening, *_sections(self._agent)], files), tokens, end="\n")
        return None if filled is None else Shared(group, filled.text, tokens, _files(filled.used))


def conversation(text: str) -> Conversation:
    """A document as it is sent: one user message."""
    return Conversation("", [], [{"role": "user", "content": text}])


def _sections(agent: Agent) -> list[Piece]:
    pieces = []
    if agent.system:
        pieces.append(Piece("", f"<system>\n{agent.system}\n</system>\n"))
    if agent.tools:
        pieces.append(
            Piece("", "<tools>\n" + "".join(f"{tool_line(tool)}\n" for tool in agent.tools) + "</tools>\n")
        )
    if agent.tree:
        pieces.append(Piece("", f"<tree>\n{agent.tree}\n</tree>\n"))
    return pieces


def _fitting(pieces: list[Piece], filler: Filler, tokens: int) -> list[Piece]:
    """Those of `pieces` that have room in `tokens` tokens, the first ones first: small contexts are for files as well."""
    kept = []
    for piece in pieces:
        count = filler.tokenizer.count(piece.text)
        if count <= tokens:
            tokens -= count
            kept.append(piece)
    return kept


def _files(sources: list[str]) -> list[str]:
    return [path for path in sources if path]
