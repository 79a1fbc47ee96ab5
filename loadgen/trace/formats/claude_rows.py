"""Rows of a Claude Code log as a tree: one node a message, all rows of one model call merged.

A row is one content block. Rows of one call share message id and request id, repeat the usage, and the early
ones may carry a placeholder (`output_tokens` 1 to 3, no stop reason).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loadgen.trace.formats.base import Report
from loadgen.trace.formats.messages import anthropic_answer, from_anthropic
from loadgen.trace.formats.rows import get_count, get_dict, get_text, json_rows, seconds
from loadgen.trace.model import Message

BOOKKEEPING = frozenset(
    (
        "summary", "system", "progress", "queue-operation", "file-history-snapshot", "attachment", "mode",
        "permission-mode", "last-prompt", "agent-name", "agent-setting", "ai-title", "custom-title", "pr-link",
        "bridge-session",
    )
)  # fmt: skip
"""Row types that no model sees as messages. An attachment's text reaches the model, but its place is not told."""


@dataclass(slots=True, eq=False)
class Node:
    """A user message or a whole model call, at its place in the file."""

    order: int
    parent: str | None
    sidechain: bool
    agent: str | None
    start: float | None
    end: float | None
    messages: list[Message] = field(default_factory=list)  # of a user row
    blocks: list[Any] = field(default_factory=list)  # of a call
    usage: dict[str, Any] = field(default_factory=dict)
    stop: str | None = None
    message_id: str | None = None
    is_call: bool = False
    copied: bool = False  # another file of the project held this call already

    _answer: Message | None = None

    def answer(self) -> Message:
        """The call's answer; one object, so that prompts that carry it are compared by identity."""
        if self._answer is None:
            self._answer = anthropic_answer(self.blocks)
        return self._answer


@dataclass(slots=True)
class Log:
    """One file. `at`: node of a uuid; `up`: parent uuid of every row, messages or not; `links`: sub-agent id → tool_use id."""

    nodes: list[Node] = field(default_factory=list)
    at: dict[str, Node] = field(default_factory=dict)
    up: dict[str, str | None] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    linked: bool = False  # some row names its parent

    def above(self, node: Node) -> Node | None:
        """The nearest message above a node; null at a root and at a compaction."""
        uuid, steps = node.parent, 0
        while uuid is not None and steps <= len(self.up):
            if uuid in self.at:
                found = self.at[uuid]
                return found if found is not node else None
            uuid, steps = self.up.get(uuid), steps + 1
        return None


def read_log(path: Path, report: Report, seen: set[str]) -> Log:
    """Read one file; `seen` holds the message ids of the project's calls so far and is added to."""
    log = Log()
    calls: dict[tuple[str | None, str | None], Node] = {}
    for number, row in json_rows(path, report):
        where = f"{path}:{number}"
        uuid, parent = get_text(row, "uuid"), get_text(row, "parentUuid")
        log.linked |= parent is not None
        if uuid:
            log.up[uuid] = parent
        message = row.get("message")
        kind = get_text(row, "type") or get_text(message, "role")
        if kind in BOOKKEEPING:
            continue
        if kind not in ("user", "assistant"):
            report.skip(f"row of unknown type {str(kind)[:40]}", where)
        elif not isinstance(message, dict):
            report.skip("row without a message", where)
        elif message.get("model") == "<synthetic>" or row.get("isApiErrorMessage") is True:
            report.skip("row that reports an error of the API, no call", where)
        else:
            with report.tolerate("malformed row", where):
                _take(log, row, message, kind, calls, report, where)
    for node in log.nodes:
        if node.is_call and node.message_id is not None:
            node.copied = node.message_id in seen
    seen.update(node.message_id for node in log.nodes if node.message_id is not None)
    return log


def _take(
    log: Log,
    row: dict[str, Any],
    message: dict[str, Any],
    kind: str,
    calls: dict[tuple[str | None, str | None], Node],
    report: Report,
    where: str,
) -> None:
    at = seconds(row.get("timestamp"))
    uuid = get_text(row, "uuid")
    node = Node(
        len(log.nodes),
        get_text(row, "parentUuid"),
        row.get("isSidechain") is True,
        get_text(row, "agentId"),
        at,
        at,
    )
    content = message.get("content")
    if kind == "user":
        if not isinstance(content, str | list):
            report.skip("user row without content", where)
            return
        node.messages = from_anthropic("user", content)
        if (agent := get_text(row.get("toolUseResult"), "agentId")) and isinstance(content, list):
            for block in content:
                if call_id := get_text(block, "tool_use_id"):
                    log.links[agent] = call_id
    else:
        key = (get_text(message, "id"), get_text(row, "requestId"))
        if key != (None, None) and key in calls:
            node = calls[key]
        else:
            node.is_call, node.message_id = True, key[0]
            calls[key] = node
            log.nodes.append(node)
        _merge(node, message, at)
        if uuid:
            log.at[uuid] = node
        return
    log.nodes.append(node)
    if uuid:
        log.at[uuid] = node


def _merge(node: Node, message: dict[str, Any], at: float | None) -> None:
    """Union of the content blocks; the usage that counts most output, then most input, then has a stop reason."""
    content = message.get("content")
    blocks = content if isinstance(content, list) else [content] if isinstance(content, str) else []
    node.blocks.extend(block for block in blocks if block not in node.blocks)
    usage, stop = get_dict(message, "usage"), get_text(message, "stop_reason")
    if _rank(usage, stop) > _rank(node.usage, node.stop) or not node.usage:
        node.usage = usage
    node.stop = stop or node.stop
    if at is not None:
        node.end = max(node.end or at, at)


def _rank(usage: dict[str, Any], stop: str | None) -> tuple[int, int, bool]:
    return get_count(usage, "output_tokens") or 0, prompt_tokens(usage) or 0, stop is not None


def prompt_tokens(usage: dict[str, Any]) -> int | None:
    """The whole prompt: `input_tokens` is only what no cache held or took."""
    parts = [
        get_count(usage, name)
        for name in ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    ]
    return None if parts[0] is None else sum(part or 0 for part in parts)
