"""opencode: `opencode.db` (SQLite) or the older `storage/{session,message,part}` folders.

The database is copied with its write-ahead log and the copy opened read-only: the original may be in use.
`tokens.input` excludes the cache. One assistant message may hold several model calls, one a `step-finish` part.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import orjson

from loadgen.trace.formats.base import Agent, Call, Format, Report
from loadgen.trace.formats.messages import assistant, text_of, tool_call, tool_result
from loadgen.trace.formats.rows import get_count, get_dict, get_text, json_document, seconds
from loadgen.trace.model import Message

Store = dict[str, list[dict[str, Any]]]
"""Objects of kind `session`, `message` and `part`."""


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    stores: list[Store] = []
    loose: Store = defaultdict(list)
    for path in files:
        if _is_database(path.name):
            stores.append(_database(path, report))
        elif path.suffix == ".json":
            kind = next((k for k in ("part", "message", "session") if k in path.parts[-4:-1]), None)
            document = json_document(path, report)
            if kind is not None and isinstance(document, dict):
                loose[kind].append(document)
            else:
                report.skip("file of unknown kind", str(path))
    if loose:
        stores.append(loose)
    for store in stores:
        yield from _families(store, report)


def _is_database(name: str) -> bool:
    return name.startswith("opencode") and name.endswith(".db")


def _database(path: Path, report: Report) -> Store:
    store: Store = defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="loadgen-") as folder:
        copy = Path(folder, "copy.db")
        for suffix in ("", "-wal"):
            if (source := Path(f"{path}{suffix}")).is_file():
                shutil.copyfile(source, f"{copy}{suffix}")
        try:
            with closing(sqlite3.connect(f"file:{copy}?mode=rw", uri=True)) as database:
                database.row_factory = sqlite3.Row
                for kind in ("session", "message", "part"):
                    for row in database.execute(f"SELECT * FROM {kind}"):
                        store[kind].append(_object(dict(row)))
        except sqlite3.Error as error:
            report.skip(f"database cannot be read ({error})", str(path))
    return store


def _object(row: dict[str, Any]) -> dict[str, Any]:
    """A row has its object as JSON under `data`, and ids as columns."""
    data: Any = {}
    if isinstance(row.get("data"), str | bytes):
        try:
            data = orjson.loads(row["data"])
        except orjson.JSONDecodeError:
            data = {}
    names = {"session_id": "sessionID", "message_id": "messageID", "parent_id": "parentID"}
    columns = {
        names.get(key, key): value for key, value in row.items() if key != "data" and value is not None
    }
    return {**columns, **(data if isinstance(data, dict) else {})}


def _families(store: Store, report: Report) -> Iterator[list[Agent]]:
    parts: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for part in sorted(store["part"], key=lambda row: str(row.get("id"))):
        parts[str(part.get("messageID"))].append(part)
    messages: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for message in sorted(store["message"], key=lambda row: str(row.get("id"))):
        messages[str(message.get("sessionID"))].append(message)
    parents = {str(row.get("id")): get_text(row, "parentID") for row in store["session"]}
    agents: dict[str, Agent] = {}
    for name in messages:
        with report.tolerate("malformed session", name):
            agents[name] = _Session(name, report).read(messages[name], parts)
    done: set[str] = set()
    for name in agents:
        root, seen = name, {name}
        while (above := parents.get(root)) in agents and above not in seen:
            root = str(above)
            seen.add(root)
        if root in done:
            continue
        done.add(root)
        family, queue = [], [root]
        while queue:
            current = queue.pop(0)
            family.append(agents[current])
            for child, above in parents.items():
                if above == current and child in agents and agents[child] not in family:
                    agents[child].parent, agents[child].kind = (
                        (current, _before(agents[current], agents[child])),
                        "sub",
                    )
                    queue.append(child)
        yield family


def _before(parent: Agent, child: Agent) -> int:
    start = child.calls[0].start_s if child.calls else None
    started = [
        i
        for i, call in enumerate(parent.calls)
        if start is not None and call.start_s is not None and call.start_s <= start
    ]
    return started[-1] if started else 0


class _Session:
    def __init__(self, name: str, report: Report) -> None:
        self.agent = Agent(id=name, calls=[])
        self.report = report
        self.prompt: list[Message] = []

    def read(self, messages: list[dict[str, Any]], parts: dict[str, list[dict[str, Any]]]) -> Agent:
        for message in messages:
            mine = parts.get(str(message.get("id")), [])
            if get_text(message, "role") == "user":
                text = "\n".join(
                    filter(
                        None, (text_of(part) for part in mine if get_text(part, "type") in ("text", "file"))
                    )
                )
                self.prompt.append({"role": "user", "content": text})
            elif get_text(message, "role") == "assistant":
                self._answer(message, mine)
        return self.agent

    def _answer(self, message: dict[str, Any], parts: list[dict[str, Any]]) -> None:
        """Parts up to a `step-finish` are one call; a message without one is a call as a whole."""
        step: list[dict[str, Any]] = []
        time = get_dict(message, "time")
        start = seconds(time.get("created"))
        last = not any(get_text(part, "type") == "step-finish" for part in parts)
        for part in parts:
            kind = get_text(part, "type")
            if kind == "compaction":
                self.prompt = []
                self.report.note("compaction; the next prompt begins with what follows it", self.agent.id)
            if kind == "step-finish":
                start = self._call(step, get_dict(part, "tokens"), get_text(part, "reason"), start, None)
                step = []
            else:
                step.append(part)
        if last or any(get_text(part, "type") in ("text", "tool") for part in step):
            self._call(
                step,
                get_dict(message, "tokens") if last else {},
                get_text(message, "finish"),
                start,
                seconds(time.get("completed")),
            )

    def _call(
        self,
        step: list[dict[str, Any]],
        tokens: dict[str, Any],
        stop: str | None,
        start: float | None,
        end: float | None,
    ) -> float | None:
        """One call and its tool results; returns the time at which the tools had ended, the start of the next call."""
        texts = [text_of(part) for part in step if get_text(part, "type") == "text"]
        thoughts = [text_of(part) for part in step if get_text(part, "type") == "reasoning"]
        tools = [(part, get_dict(part, "state")) for part in step if get_text(part, "type") == "tool"]
        calls = [
            tool_call(get_text(part, "callID") or "", get_text(part, "tool") or "tool", state.get("input"))
            for part, state in tools
        ]
        began = [
            at for _, state in tools if (at := seconds(get_dict(state, "time").get("start"))) is not None
        ]
        finished = [
            at for _, state in tools if (at := seconds(get_dict(state, "time").get("end"))) is not None
        ]
        cache = get_dict(tokens, "cache")
        plain, read, written = get_count(tokens, "input"), get_count(cache, "read"), get_count(cache, "write")
        if not self.prompt:
            self.report.note(
                "call whose prompt is not in the log; an empty message stands for it", self.agent.id
            )
            self.prompt.append({"role": "user", "content": ""})
        answer = assistant("\n".join(filter(None, texts)), calls or None, "\n".join(filter(None, thoughts)))
        output, reasoning = get_count(tokens, "output"), get_count(tokens, "reasoning")
        self.agent.calls.append(
            Call(
                prompt=list(self.prompt),
                answer=answer,
                start_s=start,
                end_s=min(began) if began else end,
                input_tokens=None if plain is None else plain + (read or 0) + (written or 0),
                output_tokens=None if output is None else output + (reasoning or 0),
                reasoning_tokens=reasoning,
                cached_tokens=read,
                stop=stop,
            )
        )
        self.prompt.append(answer)
        self.prompt.extend(
            tool_result(get_text(part, "callID") or "", state.get("output", state.get("error")))
            for part, state in tools
        )
        return max(finished) if finished else end


FORMAT = Format(
    name="opencode",
    title="opencode (SQLite and folders)",
    fidelity="messages",
    lost="system prompt, tool schemas, TTFT; inner calls of a message have only their tools' times",
    detect=lambda head: (
        (_is_database(head.path.name) and head.data[:15] == b"SQLite format 3")
        or (
            isinstance(head.value, dict | None)
            and head.path.suffix == ".json"
            and b'"sessionID"' in head.data
            and any(k in head.path.parts for k in ("message", "part"))
        )
        or (
            head.path.suffix == ".json"
            and "session" in head.path.parts[-4:-1]
            and b'"projectID"' in head.data
        )
    ),
    read=_read,
)
