"""Claude Code session logs: `~/.claude/projects/<project>/<session>.jsonl` and its sub-agents' files.

Sub-agents stand inline (`isSidechain`), in `agent-<id>.jsonl` beside the session, or under `<session>/subagents/`.
Every call becomes a turn, those on branches that a rewind left as well: the prompt of each is its own chain of parents.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path

import orjson

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.claude_rows import BOOKKEEPING, Log, Node, prompt_tokens, read_log
from loadgen.trace.formats.messages import text_of
from loadgen.trace.formats.rows import get_count, get_dict, get_text, json_rows
from loadgen.trace.model import Message

_PLACEHOLDER = 3  # output tokens of a row that was written before the answer was complete


def _detect(head: Head) -> bool:
    for row in head.rows:
        kind = get_text(row, "type")
        if "sessionId" in row and ("parentUuid" in row or (kind in BOOKKEEPING and "payload" not in row)):
            return True
        if get_text(row, "sessionId") and get_dict(get_dict(row, "message"), "usage") and "requestId" in row:
            return True
        if kind == "summary" and "leafUuid" in row:
            return True
    return False


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """One family a session; calls that a resumed copy repeats are taken once, from the first file."""
    by_session: dict[str, list[Path]] = defaultdict(list)
    for path in sorted(files, key=lambda path: (path.name.startswith("agent-"), str(path))):
        by_session[_session_of(path)].append(path)
    seen: set[str] = set()
    for session, paths in by_session.items():
        logs = [(path, read_log(path, report, seen)) for path in paths]
        if family := _family(session, logs, report):
            yield family
        else:
            report.skip("session without a model call", session)


def _session_of(path: Path) -> str:
    if path.parent.name == "subagents":
        return path.parent.parent.name
    if path.name.startswith("agent-") or path.stem == "chat":
        for _, row in json_rows(path, Report()):
            if session := get_text(row, "sessionId"):
                return session
    return path.name.split(".")[0]


def _family(session: str, logs: list[tuple[Path, Log]], report: Report) -> list[Agent]:
    groups: dict[str, tuple[Log, list[Node]]] = {}
    links: dict[str, str] = {}
    for path, log in logs:
        links.update(log.links)
        owner = path.name.removeprefix("agent-").split(".")[0] if path.name.startswith("agent-") else None
        for node in log.nodes:
            name = owner or ((node.agent or f"side{_root(log, node).order}") if node.sidechain else "")
            groups.setdefault(name, (log, []))[1].append(node)
    agents = []
    for name, (log, nodes) in sorted(groups.items(), key=lambda group: group[0] != ""):
        agent = Agent(id=f"{session}/{name}" if name else session, calls=[], kind="sub" if name else "main")
        agent.calls = _calls(log, nodes, report, agent.id)
        agent.call_id = links.get(name)
        if agent.calls:
            agents.append(agent)
    return _link(agents, report)


def _root(log: Log, node: Node) -> Node:
    for _ in range(len(log.nodes)):
        above = log.above(node)
        if above is None or not above.sidechain:
            break
        node = above
    return node


def _calls(log: Log, nodes: list[Node], report: Report, where: str) -> list[Call]:
    prompts = _Prompts(log, nodes)
    found: list[Call] = []
    for node in nodes:
        if not node.is_call:
            prompts.pass_by(node)
            continue
        prompt, asked = prompts.of(node)
        prompts.pass_by(node)
        if node.copied:
            report.skip("call that another file of the project holds already", where)
            continue
        if not prompt:
            report.note("call whose prompt is not in the log; an empty message stands for it", where)
            prompt = [{"role": "user", "content": ""}]
        output = get_count(node.usage, "output_tokens")
        if output is not None and output <= _PLACEHOLDER and node.stop is None:
            report.note("output tokens are a placeholder, taken as unknown", where)
            output = None
        start = node.start if asked is None or (node.end is not None and asked > node.end) else asked
        found.append(
            Call(
                prompt=prompt,
                answer=node.answer(),
                start_s=start,
                end_s=node.end,
                input_tokens=prompt_tokens(node.usage),
                output_tokens=output,
                cached_tokens=get_count(node.usage, "cache_read_input_tokens"),
                stop=node.stop,
            )
        )
    return found


class _Prompts:
    """Prompts by the tree of rows: a call's is that of the nearest call above it, its answer, and what came between.

    Parallel tool results hang side by side on their call; all that came before the next call belong to it. A file
    whose rows name no parents is taken as linear.
    """

    def __init__(self, log: Log, nodes: list[Node]) -> None:
        self._log = log
        self._known: dict[int, list[Message]] = {}  # prompt of each call, by its place
        self._line: list[Node] = []  # all so far, where no parents are named
        self._results: dict[int, list[Node]] = defaultdict(list)
        for node in nodes:
            if not node.is_call and any(message["role"] == "tool" for message in node.messages):
                above = log.above(node)
                if above is not None and above.is_call:
                    self._results[above.order].append(node)

    def pass_by(self, node: Node) -> None:
        if not self._log.linked:
            self._line.append(node)

    def of(self, call: Node) -> tuple[list[Message], float | None]:
        """The prompt of a call, and the time of its last input."""
        steps: list[Node] = []
        seen = {call.order}
        node = self._log.above(call) if self._log.linked else None
        while node is not None and node.order not in seen and node.order not in self._known:
            seen.add(node.order)
            steps.append(node)
            node = self._log.above(node)
        prompt: list[Message] = []
        asked: float | None = None
        if node is not None and node.order in self._known:
            prompt, asked = self._known[node.order].copy(), node.end
            steps.append(node)
        steps.reverse()
        placed: set[int] = set()
        for step in steps if self._log.linked else self._line:
            for one in (
                step,
                *(
                    result
                    for result in self._results[step.order]
                    if step.is_call and result.order < call.order
                ),
            ):
                if one.order in placed:
                    continue
                placed.add(one.order)
                prompt.extend((one.answer(),) if one.is_call else one.messages)
                if not one.is_call and one.end is not None:
                    asked = one.end
        self._known[call.order] = prompt
        return prompt, asked


def _link(agents: list[Agent], report: Report) -> list[Agent]:
    """Parents of sub-agents: by the tool call that names them, by the text of the task, else by time."""
    by_call: dict[str, tuple[Agent, int]] = {}
    by_task: dict[str, str] = {}
    for agent in agents:
        for number, call in enumerate(agent.calls):
            for tool in (call.answer or {}).get("tool_calls", ()):
                by_call[tool["id"]] = (agent, number)
                if '"prompt"' in tool["function"]["arguments"]:
                    by_task[_task(tool["function"]["arguments"])] = tool["id"]
    placed = [agent for agent in agents if agent.kind == "main"]
    waiting = [agent for agent in agents if agent.kind != "main"]
    for child in waiting:
        first: list[Message] = child.calls[0].prompt or []
        child.call_id = child.call_id or by_task.get(text_of(first[0].get("content")) if first else "")
        spawner = by_call.get(child.call_id or "")
        if spawner is not None and spawner[0] is not child:
            child.parent = (spawner[0].id, spawner[1])
        elif placed and placed[0].kind == "main":
            report.note("sub-agent is linked to its parent by time only", child.id)
            start = child.calls[0].start_s
            ended = [
                i
                for i, c in enumerate(placed[0].calls)
                if start is not None and c.end_s is not None and c.end_s <= start + 1
            ]
            child.parent = (placed[0].id, ended[-1] if ended else 0)
    return _parents_first(placed, waiting)


def _parents_first(placed: list[Agent], waiting: list[Agent]) -> list[Agent]:
    while waiting:
        known = {agent.id for agent in placed}
        ready = [agent for agent in waiting if agent.parent is None or agent.parent[0] in known]
        if not ready:  # parents of each other: cut the knot
            waiting[0].parent = None
            ready = waiting[:1]
        placed.extend(ready)
        waiting = [agent for agent in waiting if agent not in ready]
    return placed


def _task(arguments: str) -> str:
    try:
        return get_text(orjson.loads(arguments), "prompt") or ""
    except orjson.JSONDecodeError:
        return ""


FORMAT = Format(
    name="claude-code",
    title="Claude Code session logs",
    fidelity="messages",
    lost="system prompt and tool schemas (about 15 K tokens), utility calls, TTFT; request start is the last input row's time",
    detect=_detect,
    read=_read,
)
