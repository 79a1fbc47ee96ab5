"""Hash ids of full prompts → `Blocks`: which earlier turn a prompt continues, and how far.

Ids are walked in a tree, so that equal ids under different prefixes are not mistaken for the same block.
"""

from __future__ import annotations

from array import array
from collections.abc import Hashable, Sequence

from loadgen.trace.model import Blocks


class BlockTree:
    """One cache scope: a file with local ids, or a whole data set with global ones.

    A session's turns come in order; a turn of another session may be the source of a later one. Memory: about
    150 bytes a distinct block and one list of the last prompt a session.
    """

    def __init__(self) -> None:
        self._nodes: dict[tuple[int, int], int] = {}
        self._owner: array[int] = array(
            "L", (0,)
        )  # node -> number of the turn that first held it; node 0 is the root
        self._turns: list[tuple[str, int]] = []
        self._paths: dict[str, list[int]] = {}
        self._tails: dict[tuple[int, Hashable], int] = {}

    def known(self, session: str) -> int:
        """Blocks of the session's last prompt."""
        return len(self._paths.get(session, ()))

    def place(
        self,
        session: str,
        index: int,
        ids: Sequence[int],
        *,
        tail_tokens: int = 0,
        tail: Hashable = None,
        same: int = 0,
    ) -> Blocks:
        """The prompt whose blocks are the session's last prompt's first `same` ones and then `ids`.

        `tail`: an id of the unfilled last block, where the source has one; a tail seen before at the same place is
        `same_tail`.
        """
        last = self._paths.get(session, [])
        path = last[:same]
        node = path[-1] if path else 0
        nodes = self._nodes
        position = 0
        for position, block in enumerate(ids):  # noqa: B007 - the position of the first new block
            found = nodes.get((node, block))
            if found is None:
                break
            node = found
            path.append(node)
        else:
            position = len(ids)
        reuse = len(path)
        number = len(self._turns)
        self._turns.append((session, index))
        own = reuse <= len(last) and (reuse == 0 or last[reuse - 1] == path[reuse - 1])
        source = None if own else self._turns[self._owner[node]]
        for block in ids[position:]:
            nodes[(node, block)] = node = len(self._owner)
            self._owner.append(number)
            path.append(node)
        self._paths[session] = path
        same_tail = False
        if tail is not None and tail_tokens:
            holder = self._tails.setdefault((path[-1] if path else 0, tail), number)
            if holder != number and reuse == len(path):
                source, same_tail = self._turns[holder], True
        return Blocks(
            from_=source, reuse=reuse, new=len(path) - reuse, tail_tokens=tail_tokens, same_tail=same_tail
        )

    def forget(self, session: str) -> None:
        """The session has ended: its last prompt is not needed any more."""
        self._paths.pop(session, None)
