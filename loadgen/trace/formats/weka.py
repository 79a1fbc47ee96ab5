"""The weka format of kv-cache-tester and AgentX: token counts and 64-token block ids of Claude Code sessions.

Ids are chained prefix hashes, local to a file, repeated in full by every request (99.6 % of a file). Only what
differs from the request before is decoded: ids stay raw bytes, their common prefix is found by bisection and
counted by its commas.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import orjson

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.blocktree import BlockTree
from loadgen.trace.formats.rows import read_all, text_lines

BLOCK = 64


class _Request(msgspec.Struct):
    """A request, or with type "subagent" a marker that holds its requests."""

    t: float | None = None
    type: str | None = None
    model: str | None = None
    in_: int = msgspec.field(name="in", default=0)
    out: int | None = None
    hash_ids: msgspec.Raw = msgspec.Raw(b"[]")
    input_types: list[str] = []
    stop: str | None = None
    api_time: float | None = None
    think_time: float | None = None
    ttft: float | None = None
    agent_id: str | None = None
    subagent_type: str | None = None
    status: str | None = None
    duration_ms: float | None = None
    requests: list[msgspec.Raw] = []


class _Trace(msgspec.Struct):
    id: str
    requests: list[msgspec.Raw]
    block_size: int = BLOCK
    hash_id_scope: str = "local"


_REQUEST = msgspec.json.Decoder(_Request)
_TRACE = msgspec.json.Decoder(_Trace)


def _detect(head: Head) -> bool:
    return (
        all(key in head.data for key in (b'"hash_ids"', b'"block_size"', b'"requests"'))
        and head.data.lstrip()[:1] == b"{"
    )


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    scopes: dict[str, BlockTree] = {}  # of files whose ids are global
    for path in files:
        for where, document in _documents(path, report):
            try:
                trace = _TRACE.decode(document)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                report.skip("file or line is no trace of this format", where)
                continue
            if trace.block_size != BLOCK:
                report.skip(f"trace with a block size of {trace.block_size}, expected {BLOCK}", where)
                continue
            tree = scopes.setdefault("", BlockTree()) if trace.hash_id_scope == "global" else BlockTree()
            family = _Family(trace.id or where, tree, report).agents(trace)
            if family:
                yield family
            else:
                report.skip("trace without a request", where)


def _documents(path: Path, report: Report) -> Iterator[tuple[str, bytes]]:
    """A trace a file, or one a line where the file is called so."""
    if ".jsonl" in path.name:
        yield from ((f"{path}:{number}", line) for number, line in text_lines(path, report) if line.strip())
    else:
        yield str(path), read_all(path)


class _Chain:
    """A conversation and its last prompt's ids as bytes."""

    __slots__ = ("agent", "ids")

    def __init__(self, agent: Agent) -> None:
        self.agent = agent
        self.ids = b""


class _Family:
    def __init__(self, name: str, tree: BlockTree, report: Report) -> None:
        self.name = name
        self.tree = tree
        self.report = report
        self.children: list[Agent] = []
        self.unknown = 0  # made-up ids so far, for blocks that the source gives none

    def agents(self, trace: _Trace) -> list[Agent]:
        main = Agent(id=self.name, calls=[])
        self._requests(main, trace.requests, 0.0)
        return [main, *self.children] if main.calls or self.children else []

    def _requests(self, agent: Agent, rows: Sequence[msgspec.Raw], origin: float) -> None:
        """`origin`: what is added to each `t`. Requests in file order, which is time order.

        Agents that a capture has flattened into this list are told apart by what they share: see `_chain_of`.
        """
        chains = [_Chain(agent)]
        for number, raw in enumerate(rows):
            where = f"{self.name} request {number}"
            try:
                request = _REQUEST.decode(raw)
            except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
                self.report.skip("malformed request", where)
                continue
            if request.type == "subagent":
                self._subagent(agent, request, origin)
                continue
            ids = bytes(request.hash_ids)
            call = self._call(request, origin)
            with self.report.tolerate("request whose hash_ids are no list of integers", where):
                chain, same, fresh = self._chain_of(chains, ids, call)
                if same > self.tree.known(chain.agent.id):  # the last request's surplus ids were dropped
                    same, fresh = 0, _ids(ids)
                if self._place(chain.agent, request, same, fresh, call, where):
                    chain.ids = ids
                    _gaps(chain.agent, call, request)
                    chain.agent.calls.append(call)
                    chains.remove(chain)
                    chains.append(chain)

    def _chain_of(self, chains: list[_Chain], ids: bytes, call: Call) -> tuple[_Chain, int, list[int]]:
        """The conversation that a request continues, how many ids it shares with its last prompt, and the other ids.

        The last one that spoke, unless the request keeps less than half of its prompt: then another one of which it
        keeps at least half, or, if it starts before the last one's answer has ended, an agent of its own.
        """
        last = chains[-1]
        same, fresh = _new_ids(last.ids, ids)
        known = self.tree.known(last.agent.id)
        if 2 * same >= known or not last.agent.calls:
            return last, same, fresh
        for other in reversed(chains[:-1]):
            others, rest = _new_ids(other.ids, ids)
            if 2 * others >= self.tree.known(other.agent.id) > 0 and others > same:
                return other, others, rest
        end = last.agent.calls[-1].end_s
        if call.start_s is not None and end is not None and call.start_s < end - 0.5:
            main = min(chains, key=lambda chain: chain.agent.parent is not None)
            ended = [
                i for i, c in enumerate(main.agent.calls) if c.end_s is not None and c.end_s <= call.start_s
            ]
            found = _Chain(
                Agent(
                    id=f"{self.name}/flat{len(self.children)}",
                    calls=[],
                    parent=(main.agent.id, ended[-1] if ended else 0),
                    kind="sub",
                )
            )
            self.report.note(
                "agent told from a flattened capture by its overlap and its prefix", found.agent.id
            )
            self.children.append(found.agent)
            chains.append(found)
            return found, 0, _ids(ids)
        return last, same, fresh

    def _place(
        self, agent: Agent, request: _Request, same: int, fresh: list[int], call: Call, where: str
    ) -> bool:
        """Place the prompt; `in` decides its length, ids beyond it are dropped."""
        size, held = request.in_, same + len(fresh)
        if size < 0 or (request.out or 0) < 0:
            self.report.skip("request with a negative length", where)
            return False
        if held > size // BLOCK:
            self.report.note("more hash ids than `in` has blocks; the surplus is dropped", where)
            keep = size // BLOCK
            same, fresh = min(same, keep), fresh[: max(0, keep - same)]
        elif held < size // BLOCK:
            self.report.note("fewer hash ids than `in` has blocks; the rest counts as new", where)
            missing = size // BLOCK - held
            fresh = [*fresh, *(-1 - self.unknown - i for i in range(missing))]
            self.unknown += missing
        index = len(agent.calls)
        call.blocks = self.tree.place(agent.id, index, fresh, same=same, tail_tokens=size % BLOCK)
        return True

    def _call(self, request: _Request, origin: float) -> Call:
        start = None if request.t is None or request.t < 0 else origin + request.t
        api = request.api_time
        end = None if start is None or api is None or api < 0 else start + api
        return Call(
            start_s=start,
            first_s=None
            if start is None or request.ttft is None or request.ttft < 0
            else start + request.ttft,
            end_s=end,
            input_tokens=request.in_,
            output_tokens=request.out,
            stop=request.stop or None,
        )

    def _subagent(self, parent: Agent, marker: _Request, origin: float) -> None:
        child = Agent(
            id=f"{self.name}/{marker.agent_id or len(self.children)}",
            calls=[],
            parent=(parent.id, max(len(parent.calls) - 1, 0)) if parent.calls else None,
            kind=marker.subagent_type or "sub",
            wait=False if marker.status == "async_launched" else None,
        )
        if any(other.id == child.id for other in self.children):
            child.id = f"{child.id}.{len(self.children)}"
        first = next((t for raw in marker.requests if (t := _start(raw)) is not None), 0.0)
        at = marker.t or 0.0
        # kv-cache-tester counts from the spawn, AgentX from the root's start
        relative = first < at
        self.children.append(child)
        self._requests(child, marker.requests, origin + at if relative else origin)


def _start(raw: msgspec.Raw) -> float | None:
    try:
        return _REQUEST.decode(raw).t
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None


def _gaps(agent: Agent, call: Call, request: _Request) -> None:
    """Kind from how the previous call stopped; where its end is not told, `think_time` is the gap."""
    previous = agent.calls[-1] if agent.calls else None
    stop = previous.stop if previous is not None else None
    if stop in ("tool_use", "end_turn"):
        call.gap_kind = "tool" if stop == "tool_use" else "human"
    else:
        call.gap_kind = "tool" if "tool_result" in request.input_types else "human"
    if (
        previous is not None
        and previous.end_s is None
        and request.think_time is not None
        and request.think_time >= 0
    ):
        call.gap_s = request.think_time


def _new_ids(last: bytes, ids: bytes) -> tuple[int, list[int]]:
    """How many leading ids equal the last request's, and the ids after them.

    Both are JSON arrays as bytes. The common prefix ends at a comma of both (or at the end of the shorter): what
    lies between is compared as text, so white space may make equal ids look new, never different ones equal.
    """
    if not last:
        return 0, _ids(ids)
    low, high = 0, min(len(last), len(ids)) - 1  # without the closing bracket
    if last[:high] == ids[:high]:
        low = high
    while low < high:
        middle = (low + high + 1) // 2
        if last[low:middle] == ids[low:middle]:
            low = middle
        else:
            high = middle - 1
    cut = ids.rfind(b",", 0, low)
    if (
        ids[low : low + 1] in (b",", b"]")
        and last[low : low + 1] in (b",", b"]")
        and ids[:1] == b"["
        and low > 1
    ):
        same = ids.count(b",", 0, low) + 1
        rest = ids[low:]
        return same, [] if rest.strip() == b"]" else _ids(b"[" + rest.lstrip(b","))
    if cut < 0:
        return 0, _ids(ids)
    return ids.count(b",", 0, cut) + 1, _ids(b"[" + ids[cut + 1 :])


def _ids(data: bytes) -> list[int]:
    found: Any = orjson.loads(data)
    if not isinstance(found, list) or not all(type(i) is int for i in found):
        raise ValueError("no list of integers")
    return found


FORMAT = Format(
    name="weka",
    title="weka traces: kv-cache-tester, AgentX",
    fidelity="blocks",
    lost="all text; the tail of each prompt; sharing between files (ids are local to one)",
    detect=_detect,
    read=_read,
    block_size=BLOCK,
)
