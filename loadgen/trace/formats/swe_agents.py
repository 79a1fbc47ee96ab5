"""Trajectories of SWE-agent (`.traj`, three generations)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loadgen.trace.formats.base import Agent, Call, Format, Report
from loadgen.trace.formats.messages import from_openai, split_system
from loadgen.trace.formats.rows import (
    get_list,
    get_number,
    get_text,
    json_document,
)
from loadgen.trace.formats.steps import calls_of
from loadgen.trace.model import Message


def _agent(path: Path, calls: list[Call]) -> Agent:
    """One linear conversation; its system message is kept apart."""
    agent = Agent(id=path.name.split(".")[0], calls=calls)
    for call in calls:
        agent.system, call.prompt = split_system(call.prompt or [])
    return agent


def _swe(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """Newer files hold each call's query; older ones only the history, with demonstrations and sub-agents in it."""
    for path in files:
        document = json_document(path, report)
        times = [get_number(step, "execution_time") for step in get_list(document, "trajectory")]
        history = [row for row in get_list(document, "history") if isinstance(row, dict)]
        queries = [
            step
            for step in get_list(document, "trajectory")
            if isinstance(get_list(step, "query"), list) and get_list(step, "query")
        ]
        if queries and len(queries) == len(times):
            calls = [_queried(step, report) for step in queries]
        else:
            steps = [
                ([m], row)
                for row in history
                if row.get("is_demo") is not True and (m := _history(row)) is not None
            ]
            report.skip(
                "demonstration message, already part of another message",
                str(path),
                sum(r.get("is_demo") is True for r in history),
            )
            calls = calls_of(steps)
        for number, call in enumerate(calls[1:], 1):
            call.gap_kind = "tool"
            if len(times) >= len(calls) and (ran := times[number - 1]) is not None and ran >= 0:
                call.gap_s = ran
        yield [_agent(path, calls)]


def _history(row: Any) -> Message | None:
    message = from_openai(row)
    if message is not None and message["role"] == "tool" and not message["tool_call_id"]:
        message["tool_call_id"] = str(next(iter(get_list(row, "tool_call_ids")), ""))
    return message


def _queried(step: dict[str, Any], report: Report) -> Call:
    prompt = [m for row in get_list(step, "query") if (m := _history(row)) is not None]
    answer: dict[str, Any] = {"role": "assistant", "content": get_text(step, "response") or ""}
    calls = (
        from_openai(
            {"role": "assistant", "content": answer["content"], "tool_calls": get_list(step, "tool_calls")}
        )
        or answer
    )
    return Call(prompt=prompt, answer=calls)


FORMAT = Format(
    name="swe-agent",
    title="SWE-agent trajectories",
    fidelity="messages",
    lost="token counts, times of calls, tool schemas; only the tools' run time is told",
    detect=lambda head: (
        head.path.suffix == ".traj" or (b'"trajectory"' in head.data and b'"replay_config"' in head.data)
    ),
    read=_swe,
)
