"""OpenAI Codex CLI rollouts: `$CODEX_HOME/sessions/YYYY/MM/DD/rollout-….jsonl[.zst]`.

`token_count` follows a call's response items and precedes its tool outputs: it is the border between calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.messages import assistant, parts, text_of, tool_call, tool_result
from loadgen.trace.formats.rows import get_count, get_dict, get_list, get_text, json_rows, seconds
from loadgen.trace.model import Message

_ROWS = frozenset(
    ("session_meta", "turn_context", "response_item", "event_msg", "compacted", "inter_agent_communication")
)
_OUTPUTS = frozenset(
    ("function_call_output", "custom_tool_call_output", "local_shell_call_output", "tool_search_output")
)
_CALLS = frozenset(
    ("function_call", "custom_tool_call", "local_shell_call", "web_search_call", "tool_search_call")
)


def _detect(head: Head) -> bool:
    return any(get_text(row, "type") in _ROWS and isinstance(row.get("payload"), dict) for row in head.rows)


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """Families by session id: a spawned thread follows its parent. A plain file wins over its compressed sibling."""
    names = {path.name for path in files}
    sessions: list[_Rollout] = []
    for path in files:
        if path.suffix in (".zst", ".gz") and path.stem in names:
            report.skip("compressed copy of a file that is here", str(path))
            continue
        rollout = _Rollout(path, report)
        for number, row in json_rows(path, report):
            with report.tolerate("malformed row", f"{path}:{number}"):
                rollout.row(row, f"{path}:{number}")
        rollout.finish()
        sessions.append(rollout)
    by_id = {rollout.agent.id: rollout for rollout in sessions}
    children: dict[str, list[_Rollout]] = {}
    roots: list[_Rollout] = []
    for rollout in sessions:
        (
            children.setdefault(rollout.parent, [])
            if rollout.parent in by_id and rollout.parent != rollout.agent.id
            else roots
        ).append(rollout)
    for root in roots:
        family, queue = [], [root]
        while queue:
            rollout = queue.pop(0)
            family.append(rollout.agent)
            for child in children.pop(rollout.agent.id, ()):
                child.agent.parent = (rollout.agent.id, rollout.last_call_before(child.agent))
                queue.append(child)
        yield family
    for left in children.values():  # parents of each other
        for rollout in left:
            yield [rollout.agent]


class _Rollout:
    def __init__(self, path: Path, report: Report) -> None:
        self.agent = Agent(id=path.name.split(".")[0], calls=[])
        self.parent: str = ""
        self.report = report
        self.path = path
        self.history: list[Message] = []  # what the next prompt holds
        self.texts: list[str] = []  # of the answer under way
        self.thoughts: list[str] = []
        self.calls: list[dict[str, Any]] = []
        self.asked: float | None = None  # the last input row
        self.answered: float | None = None  # the last row of the answer
        self.total: tuple[int, ...] | None = None
        self.replayed_at: str | None = None

    def row(self, row: dict[str, Any], where: str) -> None:
        kind, payload = get_text(row, "type"), get_dict(row, "payload")
        at = seconds(row.get("timestamp"))
        if kind == "session_meta":
            self._meta(payload)
        elif kind == "response_item":
            self._item(payload, at, where)
        elif kind == "event_msg":
            self._event(payload, at, row, where)
        elif kind == "compacted":
            self._compacted(payload, at)
        elif kind not in _ROWS:
            self.report.skip(f"row of unknown type {str(kind)[:40]}", where)

    def _meta(self, payload: dict[str, Any]) -> None:
        if self.history or self.agent.calls:
            return  # a fork repeats its parent's header
        self.agent.id = get_text(payload, "id") or self.agent.id
        self.agent.system = text_of(payload.get("base_instructions")) or None
        spawn = get_dict(get_dict(get_dict(payload, "source"), "subagent"), "thread_spawn")
        self.parent = get_text(spawn, "parent_thread_id") or ""
        if get_dict(payload, "source"):
            self.agent.kind = "sub"
        if get_text(payload, "forked_from_id"):
            self.report.note(
                "forked session; turns that it repeats from its origin are told apart by their time only",
                str(self.path),
            )

    def _item(self, item: dict[str, Any], at: float | None, where: str) -> None:
        kind = get_text(item, "type")
        if kind == "message":
            role = get_text(item, "role")
            if role == "assistant":
                self.texts.append(text_of(item.get("content")))
                self.answered = at or self.answered
            else:
                self._input(
                    {
                        "role": "developer" if role == "developer" else "user",
                        "content": parts(get_list(item, "content")),
                    },
                    at,
                )
        elif kind == "reasoning":
            self.thoughts.append(text_of(item.get("summary")) or text_of(item.get("content")))
            self.answered = at or self.answered
        elif kind in _CALLS:
            name = get_text(item, "name") or str(kind).removesuffix("_call")
            arguments = item.get("arguments", item.get("input", item.get("action")))
            self.calls.append(tool_call(get_text(item, "call_id", "id") or "", name, arguments))
            self.answered = at or self.answered
        elif kind in _OUTPUTS:
            output = item.get("output")
            self._input(
                tool_result(
                    get_text(item, "call_id") or "", output if output is not None else item.get("tools")
                ),
                at,
            )
        elif kind == "compaction":
            pass  # its text is encrypted; the `compacted` row tells what replaces the history
        else:
            self.report.skip(f"response item of unknown type {str(kind)[:40]}", where)

    def _input(self, message: Message, at: float | None) -> None:
        if self.texts or self.calls or any(self.thoughts):
            # an answer without a token_count: an aborted call, or an old client that wrote none
            self._call({}, None)
        self.history.append(message)
        self.asked = at or self.asked

    def _event(self, payload: dict[str, Any], at: float | None, row: dict[str, Any], where: str) -> None:
        kind = get_text(payload, "type")
        if kind == "token_count":
            info = get_dict(payload, "info")
            usage = get_dict(info, "last_token_usage")
            total = _counts(get_dict(info, "total_token_usage"))
            if not info or (total is not None and total == self.total):
                return  # repeated, or without figures
            if not usage and total is not None:
                before = self.total or (0,) * len(total)
                names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
                usage = {name: max(0, a - b) for name, a, b in zip(names, total, before, strict=True)}
            self.total = total
            self._call(usage, at)
        elif kind == "turn_aborted" and (self.texts or self.calls):
            self._call({}, at, stop="aborted")
        elif kind == "thread_rolled_back":
            turns = get_count(payload, "num_turns") or 1
            self._flush()
            users = [i for i, message in enumerate(self.history) if message["role"] == "user"]
            if users:
                self.history = self.history[: users[-min(turns, len(users))]]

    def _flush(self) -> None:
        if self.texts or self.calls:
            self._call({}, None)

    def _call(self, usage: dict[str, Any], at: float | None, stop: str | None = None) -> None:
        """The rows since the last border are one call's answer."""
        answer = assistant(
            "\n".join(filter(None, self.texts)), self.calls or None, "\n".join(filter(None, self.thoughts))
        )
        silent = not (self.texts or self.calls or self.thoughts)
        prompt = list(self.history)
        if not prompt:
            self.report.note(
                "call whose prompt is not in the log; an empty message stands for it", str(self.path)
            )
            prompt = [{"role": "user", "content": ""}]
            self.history = list(prompt)
        if not usage:
            self.report.note("call without a token count", str(self.path))
        self.agent.calls.append(
            Call(
                prompt=prompt,
                answer=answer,
                start_s=self.asked if self.asked is not None else at,
                end_s=at if silent else self.answered,
                input_tokens=get_count(usage, "input_tokens"),
                output_tokens=get_count(usage, "output_tokens"),
                reasoning_tokens=get_count(usage, "reasoning_output_tokens"),
                cached_tokens=get_count(usage, "cached_input_tokens"),
                stop=stop or ("tool_calls" if self.calls else None if silent else "stop"),
            )
        )
        self.history.append(answer)
        self.texts, self.thoughts, self.calls = [], [], []

    def _compacted(self, payload: dict[str, Any], at: float | None) -> None:
        """The history is replaced: by the rows that the log gives, or by the summary alone."""
        self._flush()
        replaced = [
            m for row in get_list(payload, "replacement_history") if (m := _history_message(row)) is not None
        ]
        self.history = replaced or [{"role": "user", "content": get_text(payload, "message") or ""}]
        self.asked = at or self.asked

    def finish(self) -> None:
        self._flush()

    def last_call_before(self, child: Agent) -> int:
        start = child.calls[0].start_s if child.calls else None
        ended = [
            i
            for i, call in enumerate(self.agent.calls)
            if start is not None and call.end_s is not None and call.end_s <= start + 1
        ]
        return ended[-1] if ended else 0


def _history_message(row: Any) -> Message | None:
    if get_text(row, "type") == "message" and (role := get_text(row, "role")):
        return {
            "role": role if role in ("assistant", "developer") else "user",
            "content": parts(get_list(row, "content")),
        }
    return None


def _counts(usage: dict[str, Any]) -> tuple[int, ...] | None:
    names = ("input_tokens", "cached_input_tokens", "output_tokens", "reasoning_output_tokens")
    return tuple(get_count(usage, name) or 0 for name in names) if usage else None


FORMAT = Format(
    name="codex",
    title="Codex CLI rollouts",
    fidelity="messages",
    lost="tool schemas, encrypted reasoning, TTFT; request start is the last input row's time",
    detect=_detect,
    read=_read,
)
