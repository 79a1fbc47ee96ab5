"""Trajectories of SWE-agent (`.traj`, three generations) and mini-swe-agent (`.traj.json`, v1 and v2)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.messages import from_openai, split_system
from loadgen.trace.formats.rows import (
    get_count,
    get_dict,
    get_list,
    get_number,
    get_text,
    json_document,
    seconds,
)
from loadgen.trace.formats.steps import calls_of
from loadgen.trace.model import Message


def _agent(path: Path, calls: list[Call]) -> Agent:
    """One linear conversation; its system message is kept apart."""
    agent = Agent(id=path.name.split(".")[0], calls=calls)
    for call in calls:
        agent.system, call.prompt = split_system(call.prompt or [])
    return agent


def _usage(call: Call, usage: dict[str, Any]) -> None:
    call.input_tokens = get_count(usage, "prompt_tokens", "input_tokens")
    call.output_tokens = get_count(usage, "completion_tokens", "output_tokens")
    call.cached_tokens = get_count(get_dict(usage, "prompt_tokens_details"), "cached_tokens")
    call.reasoning_tokens = get_count(get_dict(usage, "completion_tokens_details"), "reasoning_tokens")


def _mini(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """Strictly linear. v2 tells the time of each message's end; a call's start is the time of the message before."""
    for path in files:
        document = json_document(path, report)
        rows = document if isinstance(document, list) else get_list(document, "messages")
        steps: list[tuple[list[Message], Any]] = []
        for number, row in enumerate(rows):
            if (message := from_openai(row)) is not None:
                steps.append(([message], row))
            elif get_text(row, "role") != "exit":
                report.skip("message of unknown shape", f"{path} message {number}")
        before: dict[int, float | None] = {}
        last = None
        for _, row in steps:
            before[id(row)] = last
            last = seconds(get_dict(row, "extra").get("timestamp"))

        def fill(call: Call, row: Any, before: dict[int, float | None] = before) -> None:
            extra = get_dict(row, "extra")
            call.end_s, call.start_s = seconds(extra.get("timestamp")), before[id(row)]
            _usage(call, get_dict(get_dict(extra, "response"), "usage"))
            choice = next(iter(get_list(get_dict(extra, "response"), "choices")), None)
            call.stop = get_text(choice, "finish_reason")
            call.gap_kind = "tool"

        yield [_agent(path, calls_of(steps, fill))]


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


def _is_mini(head: Head) -> bool:
    if b'"trajectory_format"' in head.data or (
        head.path.name.endswith(".traj.json") and b'"role"' in head.data
    ):
        return True
    value = head.value
    return (
        isinstance(value, list)
        and bool(value)
        and get_text(value[0], "role") is not None
        and head.path.name.endswith(".traj.json")
    )


MINI = Format(
    name="mini-swe-agent",
    title="mini-swe-agent trajectories",
    fidelity="messages",
    lost="TTFT; v1 files have neither times nor token counts",
    detect=_is_mini,
    read=_mini,
)
SWE_AGENT = Format(
    name="swe-agent",
    title="SWE-agent trajectories",
    fidelity="messages",
    lost="token counts, times of calls, tool schemas; only the tools' run time is told",
    detect=lambda head: (
        head.path.suffix == ".traj" or (b'"trajectory"' in head.data and b'"replay_config"' in head.data)
    ),
    read=_swe,
)
