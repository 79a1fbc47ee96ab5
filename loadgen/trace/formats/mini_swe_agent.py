"""mini-swe-agent (`.traj.json`): v1, a bare list of messages, and v2 as 2.4 writes it.

v2 keeps each answer as its API gave it: a chat message, or, from the Responses API, the whole response object whose
output items are sent again. An answer that the agent could not use (no command, or two) is not in the conversation:
it stands in `extra.response` of the user message that complains about it, and was a model call all the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.messages import from_openai, responses_answer, split_system, tool_result
from loadgen.trace.formats.rows import get_count, get_dict, get_list, get_text, json_document, seconds
from loadgen.trace.model import Message


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    for path in files:
        document = json_document(path, report)
        rows = document if isinstance(document, list) else get_list(document, "messages")
        calls = _calls(rows, path, report)
        agent = Agent(id=path.name.split(".")[0], calls=calls)
        for call in calls:
            agent.system, call.prompt = split_system(call.prompt or [])
        yield [agent]


def _calls(rows: list[Any], path: Path, report: Report) -> list[Call]:
    """Strictly linear. A call begins at the time of the message before it; its own message tells its end."""
    prompt: list[Message] = []
    calls: list[Call] = []
    last: float | None = None
    for number, row in enumerate(rows):
        where = f"{path} message {number}"
        with report.tolerate("malformed message", where):
            message = _message(row)
            if message is None:
                if get_text(row, "role") != "exit":
                    report.skip("message of unknown shape", where)
                continue
            extra = get_dict(row, "extra")
            at = seconds(extra.get("timestamp"))
            response = row if get_text(row, "object") == "response" else get_dict(extra, "response")
            answer = message if message["role"] == "assistant" else _rejected(extra)
            if answer is not None and prompt:
                call = Call(prompt=list(prompt), answer=answer, start_s=last, end_s=at, gap_kind="tool")
                _usage(call, response)
                calls.append(call)
            prompt.append(message)
            last = at
    return calls


def _message(row: Any) -> Message | None:
    """A row of any API; null where it is none of the conversation."""
    if get_text(row, "object") == "response":
        return responses_answer(get_list(row, "output"))
    if get_text(row, "type") == "function_call_output":
        return tool_result(get_text(row, "call_id") or "", row.get("output"))
    return from_openai(row)


def _rejected(extra: dict[str, Any]) -> Message | None:
    """The answer that a complaint is about, if any."""
    response = get_dict(extra, "response")
    if not response or get_text(extra, "interrupt_type") is None:
        return None
    if get_text(response, "object") == "response":
        return responses_answer(get_list(response, "output"))
    choice = next(iter(get_list(response, "choices")), None)
    message = from_openai(get_dict(choice, "message"))
    return message if message is not None and message["role"] == "assistant" else None


def _usage(call: Call, response: dict[str, Any]) -> None:
    usage = get_dict(response, "usage")
    read = get_dict(usage, "prompt_tokens_details") or get_dict(usage, "input_tokens_details")
    made = get_dict(usage, "completion_tokens_details") or get_dict(usage, "output_tokens_details")
    call.input_tokens = get_count(usage, "prompt_tokens", "input_tokens")
    call.output_tokens = get_count(usage, "completion_tokens", "output_tokens")
    call.cached_tokens = get_count(read, "cached_tokens")
    call.reasoning_tokens = get_count(made, "reasoning_tokens")
    choice = next(iter(get_list(response, "choices")), None)
    call.stop = get_text(choice, "finish_reason") or get_text(response, "status")


def _detect(head: Head) -> bool:
    # a long file has `trajectory_format` at its end, behind the messages
    if b'"trajectory_format"' in head.data or b'"mini_version"' in head.data:
        return True
    if not head.path.name.endswith(".traj.json"):
        return False
    value = head.value
    first = value[0] if isinstance(value, list) and value else None
    return b'"role"' in head.data or get_text(first, "role") is not None


FORMAT = Format(
    name="mini-swe-agent",
    title="mini-swe-agent trajectories",
    fidelity="messages",
    lost="tool schema, TTFT, the time of an answer that was rejected; v1 files have neither times nor token counts",
    detect=_detect,
    read=_read,
)
