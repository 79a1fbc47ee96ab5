"""Request logs with global block hashes: Mooncake (512 tokens a block) and Bailian (16).

A row is one request with the hash ids of all its blocks, the last one often not full. Rows that continue each
other are told by `chat_id` in Bailian and not at all in Mooncake, where each row is a session of one turn.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.blocktree import BlockTree
from loadgen.trace.formats.rows import get_count, get_list, get_number, json_rows
from loadgen.trace.model import Blocks


def _place(
    tree: BlockTree, session: str, index: int, row: dict[str, Any], size: int, report: Report, where: str
) -> tuple[Blocks, int]:
    """Blocks and prompt tokens of a row. The id of a last block that is not full is its tail."""
    ids = [block for block in get_list(row, "hash_ids") if type(block) is int]
    length = get_count(row, "input_length") or 0
    full, tail = divmod(length, size)
    if len(ids) not in (full, full + bool(tail)):
        report.note(
            "number of hash ids and input_length disagree; missing blocks count as new, surplus is dropped",
            where,
        )
    tail_id = ids[full] if tail and len(ids) > full else None
    missing = full - len(ids)
    placed = ids[:full] + [-1 - hash((session, index, i)) % 2**60 for i in range(missing)]
    return tree.place(session, index, placed, tail_tokens=tail, tail=tail_id), length


def _rows(path: Path, report: Report) -> Iterator[tuple[str, dict[str, Any], float]]:
    for number, row in json_rows(path, report):
        where = f"{path}:{number}"
        start = get_number(row, "timestamp")
        if start is None or start < 0 or get_count(row, "input_length") is None:
            report.skip("row without a time and an input length", where)
        else:
            yield where, row, start


def _mooncake(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """Ids are global within a file. Rows come in time order; times are milliseconds."""
    for path in files:
        tree = BlockTree()
        for where, row, start in _rows(path, report):
            name = f"{path.stem}:{where.rsplit(':', 1)[1]}"
            blocks, length = _place(tree, name, 0, row, 512, report, where)
            tree.forget(name)
            call = Call(
                blocks=blocks,
                start_s=start / 1000,
                input_tokens=length,
                output_tokens=get_count(row, "output_length"),
            )
            yield [Agent(id=name, calls=[call])]


def _bailian(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """A chat is a chain of `parent_chat_id`; a second child of the same request is a fork, a session of its own."""
    for path in files:
        tree = BlockTree()
        agents: dict[int, Agent] = {}  # by the chat id of their last request
        order: list[Agent] = []
        for where, row, start in _rows(path, report):
            chat, parent = get_count(row, "chat_id"), get_number(row, "parent_chat_id")
            agent = agents.pop(int(parent), None) if parent is not None and parent >= 0 else None
            if agent is None:
                agent = Agent(
                    id=f"{path.stem}:{chat if chat is not None else where.rsplit(':', 1)[1]}", calls=[]
                )
                if parent is not None and parent >= 0:
                    report.note(
                        "request whose parent is not there or was continued by another; a session of its own",
                        where,
                    )
                order.append(agent)
            blocks, length = _place(tree, agent.id, len(agent.calls), row, 16, report, where)
            call = Call(
                blocks=blocks,
                start_s=start,
                input_tokens=length,
                output_tokens=get_count(row, "output_length"),
                gap_kind="human",
            )
            if agent.calls:
                report.note("gap that holds the time of the previous answer, too (only starts are told)")
                call.gap_s = start - (agent.calls[-1].start_s or start)
            agent.calls.append(call)
            if chat is not None:
                agents[chat] = agent
        for agent in order:
            yield [agent]


def _has(head: Head, *names: str) -> bool:
    return bool(head.rows) and all(name in head.rows[0] for name in names)


BAILIAN = Format(
    name="bailian",
    title="Bailian usage traces (Qwen)",
    fidelity="blocks",
    lost="text, latencies; gaps (only starts are told)",
    detect=lambda head: _has(head, "chat_id", "parent_chat_id", "hash_ids", "input_length"),
    read=_bailian,
    block_size=16,
    licence="Apache-2.0",
)
MOONCAKE = Format(
    name="mooncake",
    title="Mooncake request traces",
    fidelity="blocks",
    lost="sessions, text, latencies; times stand on ticks of about 3 s",
    detect=lambda head: _has(head, "timestamp", "input_length", "output_length", "hash_ids"),
    read=_mooncake,
    block_size=512,
    licence="Apache-2.0",
)
