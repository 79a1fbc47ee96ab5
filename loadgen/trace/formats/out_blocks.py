"""Exports that keep prefix structure as block ids: weka (kv-cache-tester) and Mooncake rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import orjson

from loadgen.trace.formats.base import Report
from loadgen.trace.formats.blockids import BlockIds
from loadgen.trace.model import Session, Turn
from loadgen.trace.reader import TraceFile
from loadgen.trace.timeline import Timeline
from loadgen.trace.tree import PrefixTree


class _Times:
    """Start and end of each record of each session."""

    def __init__(self, trace: TraceFile) -> None:
        self._found: dict[tuple[str, int], tuple[float, float]] = {}
        ids = [session.id for session in trace.sessions]
        for start, end, number, place in Timeline(trace).in_order():
            self._found[ids[number], place] = (start, end)

    def of(self, session: str, place: int) -> tuple[float, float]:
        return self._found[session, place]


def mooncake(trace: TraceFile, report: Report) -> Iterator[bytes]:
    """One row a turn in order of their starts; ids of the whole trace."""
    tree = PrefixTree(trace)
    ids = BlockIds(tree, 512)
    sessions = [session.id for session in trace.sessions]
    rows: dict[str, list[Turn]] = {}
    for start, _, number, place in Timeline(trace).in_order():
        name = sessions[number]
        if name not in rows:
            rows[name] = trace.turns(name)
        node, turn = tree.node(name, place), rows[name][place]
        if place + 1 == len(rows[name]):
            del rows[name]
        hashes = ids.full(node)
        if (partial := ids.partial(node)) is not None:
            hashes.append(partial)
        length = tree.length[node] * tree.unit + tree.tail[node]
        row = {
            "timestamp": round(start * 1000),
            "input_length": length,
            "output_length": _output(turn, report),
            "hash_ids": hashes,
        }
        yield orjson.dumps(row) + b"\n"


def weka(trace: TraceFile, report: Report) -> Iterator[bytes]:
    """One JSON object a family and line, ids local to it; sub-agents of sub-agents stand beside them."""
    tree = PrefixTree(trace)
    ids = BlockIds(tree, 64)
    times = _Times(trace)
    children: dict[str, list[Session]] = {}
    above = {session.id: session.parent.session for session in trace.sessions if session.parent is not None}
    for session in trace.sessions:
        if session.parent is not None:
            root = session.id
            while root in above:
                root = above[root]
            children.setdefault(root, []).append(session)
            if above[session.id] != root:
                report.note("sub-agent of a sub-agent; it hangs on the main agent", session.id)
    if len(trace.sessions) > sum(map(len, children.values())) + 1:
        report.note("ids are local to a family: sharing between families is lost")
    for session in trace.sessions:
        if session.parent is None:
            ids.forget()
            yield (
                orjson.dumps(_family(trace, session, children.get(session.id, []), tree, ids, times, report))
                + b"\n"
            )


def _family(
    trace: TraceFile,
    root: Session,
    children: list[Session],
    tree: PrefixTree,
    ids: BlockIds,
    times: _Times,
    report: Report,
) -> dict[str, Any]:
    origin = times.of(root.id, 0)[0]
    requests = _requests(trace, root, origin, tree, ids, times, report)
    markers: dict[int, list[dict[str, Any]]] = {}
    for child in children:
        assert child.parent is not None
        nested = child.parent.session != root.id
        start = times.of(child.id, 0)[0]
        marker = {
            "t": round(start - origin, 6),
            "type": "subagent",
            "agent_id": child.id.removeprefix(f"{root.id}/"),
            "subagent_type": child.agent,
            "status": "completed" if child.parent.wait else "async_launched",
            "requests": _requests(trace, child, start, tree, ids, times, report),
        }
        markers.setdefault(0 if nested else child.parent.turn, []).append(marker)
    merged: list[dict[str, Any]] = []
    for index, request in enumerate(requests):
        merged.append(request)
        merged.extend(markers.get(index, ()))
    return {
        "id": root.id,
        "models": ["unknown"],
        "block_size": 64,
        "hash_id_scope": "local",
        "tool_tokens": 0,
        "system_tokens": 0,
        "requests": merged,
    }


def _requests(
    trace: TraceFile,
    session: Session,
    origin: float,
    tree: PrefixTree,
    ids: BlockIds,
    times: _Times,
    report: Report,
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for place, turn in enumerate(trace.turns(session.id)):
        if turn.attempt > 1:
            report.skip("retry: the format has none", session.id)
            continue
        node = tree.node(session.id, place)
        start, _ = times.of(session.id, place)
        gap = turn.gap
        row: dict[str, Any] = {
            "t": round(start - origin, 6),
            "type": "n",
            "model": "unknown",
            "in": tree.length[node] * tree.unit + tree.tail[node],
            "out": _output(turn, report),
            "hash_ids": ids.full(node),
            "input_types": ["tool_result" if gap is not None and gap.kind == "tool" else "text"],
            "output_types": ["tool_use" if turn.stop == "tool_use" else "text"],
            "stop": turn.stop or "",
            "think_time": round(gap.s, 6) if gap is not None else 0.0,
        }
        if turn.seen is not None and turn.seen.e2e_s is not None:
            row["api_time"] = turn.seen.e2e_s
        if turn.seen is not None and turn.seen.ttft_s is not None:
            row["type"], row["ttft"] = "s", turn.seen.ttft_s
        found.append(row)
    return found


def _output(turn: Turn, report: Report) -> int:
    if turn.output_tokens is None:
        report.note("unknown output length, written as 0", f"{turn.session} turn {turn.index}")
    return turn.output_tokens or 0
