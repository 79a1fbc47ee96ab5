"""Tasks of Cline's classic core (3.x, CLI 2.18): requests that tell their place, answers that are not kept."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadgen.trace.importing import import_trace
from loadgen.trace.reader import open_trace
from tests.trace.test_formats import prompts, turns

Row = dict[str, Any]
START = 1_780_000_000_000


def row(role: str, text: str, at: int, provider: str = "openai") -> Row:
    content = [{"type": "text", "text": text}, {"type": "text", "text": "<environment_details>"}]
    more = {"modelInfo": {"providerId": provider}} if role == "assistant" else {}
    return {"role": role, "content": content, "ts": START + at, **more}


def request(place: int, at: int, **usage: Any) -> Row:
    counts = {"tokensIn": 100, "tokensOut": 9, "cacheWrites": 0, "cacheReads": 60, **usage}
    text = json.dumps({"request": "…", **{k: v for k, v in counts.items() if v is not None}})
    event = {"ts": START + at, "type": "say", "say": "api_req_started", "text": text}
    return {**event, "conversationHistoryIndex": place}


def imported(
    tmp_path: Path, rows: list[Row], events: list[Row]
) -> tuple[list[Any], list[Any], dict[str, Any]]:
    folder = tmp_path / "tasks" / "17"
    folder.mkdir(parents=True)
    (folder / "api_conversation_history.json").write_text(json.dumps(rows))
    (folder / "ui_messages.json").write_text(json.dumps(events))
    done = import_trace([tmp_path / "tasks"], tmp_path / "out.jsonl")
    assert done.format.name == "cline-task"
    with open_trace(done.path) as trace:
        return turns(trace), prompts(trace), trace.header.made or {}


def conversation(provider: str = "openai") -> list[Row]:
    return [
        row("user", "<task>go</task>", 100),
        row("assistant", "I look.", 2000, provider),
        row("user", "[execute_command for 'ls'] Result: README", 2500),
    ]


def test_requests_are_matched_by_their_place_and_lost_answers_are_noted(tmp_path: Path) -> None:
    told: Row = {"ts": START, "type": "say", "say": "text", "text": "x", "conversationHistoryIndex": 0}
    cancelled = request(1, 9000, tokensIn=None, tokensOut=None)
    events = [request(-1, 100), told, request(1, 2600), request(1, 8000), cancelled]
    found, asked, made = imported(tmp_path, conversation(), events)
    assert [turn.input_tokens for turn in found] == [100, 100, 100]  # the server counted the cache in
    assert [turn.cached_tokens for turn in found] == [60, 60, 60]
    assert [turn.answer is None for turn in found] == [False, True, True]
    assert [len(prompt) for prompt in asked] == [1, 3, 3]
    assert found[0].seen.e2e_s == 1.9
    assert (found[1].gap.kind, found[1].gap.s) == ("tool", 0.6)
    assert made["skipped"] == {"request that ended without an answer": 1}
    assert made["notes"] == {
        "answer that the task does not hold (its last one, or one before it was resumed)": 2
    }


@pytest.mark.parametrize(("provider", "tokens"), [("anthropic", 160), ("openai", 100)])
def test_the_provider_tells_whether_the_cache_is_counted(tmp_path: Path, provider: str, tokens: int) -> None:
    found, _, _ = imported(tmp_path, conversation(provider)[:2], [request(-1, 100)])
    assert [turn.input_tokens for turn in found] == [tokens]


def test_messages_that_cline_left_out_are_not_in_the_prompt(tmp_path: Path) -> None:
    rows = [
        *conversation(),
        row("assistant", "Again.", 4000),
        row("user", "more", 5000),
        row("assistant", "ok", 6000),
    ]
    cut = {**request(3, 5100), "conversationHistoryDeletedRange": [2, 3]}
    found, asked, _ = imported(tmp_path, rows, [request(-1, 100), request(1, 2600), cut])
    assert len(found) == 3
    assert [m["role"] for m in asked[2]] == ["user", "assistant", "user"]
