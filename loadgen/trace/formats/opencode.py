"""opencode: `opencode.db` (SQLite, since 1.2) or the older `storage/{session,message,part}` folders.

The database is copied with its write-ahead log and the copy opened read-only: the original may be in use.
What the objects mean is in `loadgen.trace.formats.opencode_session`.
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

from loadgen.trace.formats.base import Agent, Format, Report
from loadgen.trace.formats.opencode_session import SessionReader
from loadgen.trace.formats.rows import get_list, get_text, json_document

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
    versions = {str(row.get("id")): get_text(row, "version") for row in store["session"]}
    agents: dict[str, Agent] = {}
    tasks: dict[str, tuple[str, str]] = {}  # sub-session -> its parent's session and tool call
    for name in messages:
        with report.tolerate("malformed session", name):
            reader = SessionReader(name, versions.get(name), report)
            agents[name] = reader.read(messages[name], parts)
            tasks.update((child, (name, call)) for child, call in reader.tasks.items())
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
                    _attach(agents[current], agents[child], tasks.get(child, ("", ""))[1])
                    queue.append(child)
        yield family


def _attach(parent: Agent, child: Agent, call_id: str) -> None:
    """The child starts after the call that asked for it, or after the last one that had begun before it."""
    asked = [
        i
        for i, call in enumerate(parent.calls)
        if call_id and any(tool["id"] == call_id for tool in get_list(call.answer, "tool_calls"))
    ]
    child.parent = (parent.id, asked[-1] if asked else _before(parent, child))
    child.call_id = call_id if asked else None
    child.kind = "sub"


def _before(parent: Agent, child: Agent) -> int:
    start = child.calls[0].start_s if child.calls else None
    started = [
        i
        for i, call in enumerate(parent.calls)
        if start is not None and call.start_s is not None and call.start_s <= start
    ]
    return started[-1] if started else 0


FORMAT = Format(
    name="opencode",
    title="opencode (SQLite and folders)",
    fidelity="messages",
    lost="system prompt, tool schemas, title calls, TTFT, the prompt of a compaction; a start is the answer's entry",
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
