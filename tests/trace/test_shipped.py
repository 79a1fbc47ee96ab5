"""What ships: the schema is that of the records, and the traces are valid."""

from __future__ import annotations

import json

import pytest

from loadgen.paths import data_dir
from loadgen.trace.reader import open_trace
from loadgen.trace.schema import schema
from loadgen.trace.summary import summarize


def test_the_shipped_schema_is_that_of_the_records() -> None:
    assert json.loads((data_dir("traces") / "trace.schema.json").read_text(encoding="utf-8")) == schema()


@pytest.mark.parametrize(("name", "sessions", "turns"), [("claude-code-3", 5, 77), ("heavy-20", 28, 2123)])
def test_shipped_traces(name: str, sessions: int, turns: int) -> None:
    with open_trace(data_dir("traces") / f"{name}.jsonl.zst") as trace:
        figures = summarize(trace)
    assert (figures["sessions"], figures["turns"], figures["open_sessions"]) == (sessions, turns, 0)
    assert 0.9 < figures["ideal_hit_share"] < 0.99


def test_every_shipped_trace_stands_in_the_readme() -> None:
    folder = data_dir("traces")
    text = (folder / "README.md").read_text(encoding="utf-8")
    assert [path.name for path in folder.glob("*.jsonl*") if path.name not in text] == []
