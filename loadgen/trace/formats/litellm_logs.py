"""LiteLLM's standard logging payload (`kwargs["standard_logging_object"]` of a callback), as proxy 1.108 writes it.

Each row has a trace id: the session's (header `x-litellm-session-id`, `metadata.session_id`), or one of its own where
the client named no session. Rows of the latter kind are put together by their content. Requests to `/v1/messages` and
`/v1/responses` are logged with their own shapes of messages and tools.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.chains import Logged, families
from loadgen.trace.formats.messages import (
    anthropic_tools,
    from_anthropic,
    from_openai,
    responses_answer,
    responses_messages,
    split_system,
)
from loadgen.trace.formats.rows import get_count, get_dict, get_list, get_text, logged_rows, seconds
from loadgen.trace.model import Message

_REDACTED = "redacted-by-litellm"
_BLOCKS = frozenset(("tool_use", "tool_result", "thinking", "redacted_thinking"))


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    rows = [entry for path in files for entry in logged_rows(path, report)]
    seen = Counter(get_text(row, "trace_id") for _, row in rows)
    logged = []
    for where, row in rows:
        with report.tolerate("malformed row", where):
            if (call := _call(row, report, where)) is not None:
                trace = get_text(row, "trace_id")
                key = _session(row) or (trace if trace is not None and seen[trace] > 1 else "")
                system, call.prompt = _system(row, call.prompt or [])
                logged.append(Logged(call, key or "", system, _tools(row)))
    yield from families(logged, "litellm")


def _call(row: dict[str, Any], report: Report, where: str) -> Call | None:
    answer, stop, usage = _answer(row)
    if get_text(row, "status") == "failure":
        if answer is None:
            report.skip("request that failed; nothing was generated", where)
            return None
        stop = "error"
    prompt = _prompt(row.get("messages"))
    if not prompt or prompt[-1]["content"] == _REDACTED:
        report.note("request without its messages; an empty message stands for the prompt", where)
        prompt = [{"role": "user", "content": ""}]
    read = get_dict(usage, "prompt_tokens_details") or get_dict(usage, "input_tokens_details")
    made = get_dict(usage, "completion_tokens_details") or get_dict(usage, "output_tokens_details")
    call = Call(
        prompt=prompt,
        answer=answer,
        start_s=seconds(row.get("startTime")),
        first_s=seconds(row.get("completionStartTime")),
        end_s=seconds(row.get("endTime")),
        input_tokens=get_count(row, "prompt_tokens"),
        output_tokens=get_count(row, "completion_tokens"),
        reasoning_tokens=get_count(made, "reasoning_tokens"),
        cached_tokens=get_count(read, "cached_tokens"),
        stop=stop,
    )
    if call.first_s is not None and call.first_s == call.end_s:
        call.first_s = None  # a request that was not streamed
    elif call.first_s is not None and get_text(row, "call_type") == "anthropic_messages":
        # the proxy sends a ping of its own at once, and takes its time for the first token's
        call.first_s = None
        report.note("time to first token of /v1/messages, which is the proxy's own ping's; left out")
    return call


def _answer(row: dict[str, Any]) -> tuple[Message | None, str | None, dict[str, Any]]:
    """Answer, stop reason and usage of a row's response."""
    response = get_dict(row, "response")
    usage = get_dict(response, "usage") or get_dict(get_dict(row, "metadata"), "usage_object")
    if items := get_list(response, "output"):
        return responses_answer(items), get_text(response, "status"), usage
    choice = next(iter(get_list(response, "choices")), None)
    answer = from_openai(get_dict(choice, "message"))
    is_answer = answer is not None and answer["role"] == "assistant"
    return answer if is_answer else None, get_text(choice, "finish_reason"), usage


def _prompt(rows: Any) -> list[Message]:
    if isinstance(rows, str):
        return [{"role": "user", "content": rows}] if rows else []
    items = rows if isinstance(rows, list) else []
    if any(
        get_text(item, "type") in ("function_call", "function_call_output", "reasoning") for item in items
    ):
        return responses_messages(items)
    messages: list[Message] = []
    for item in items:
        role, content = get_text(item, "role"), get_list(item, "content")
        if role in ("user", "assistant") and any(get_text(block, "type") in _BLOCKS for block in content):
            messages.extend(from_anthropic(role, content))
        elif (message := from_openai(item)) is not None:
            messages.append(message)
    return messages


def _system(row: dict[str, Any], prompt: list[Message]) -> tuple[object, list[Message]]:
    """The first message, or the instructions of the Responses API."""
    instructions = get_text(get_dict(row, "model_parameters"), "instructions")
    return (instructions, prompt) if instructions else split_system(prompt)


def _tools(row: dict[str, Any]) -> list[Any] | None:
    """Tool definitions in OpenAI's chat shape, whichever of the three they are logged in."""
    tools = get_list(get_dict(row, "model_parameters"), "tools")
    if any(isinstance(tool, dict) and "input_schema" in tool for tool in tools):
        return anthropic_tools({"tools": tools})
    flat = [tool for tool in tools if isinstance(tool, dict) and "function" not in tool and "name" in tool]
    if flat:
        keys = ("name", "description", "parameters")
        return [{"type": "function", "function": {k: t[k] for k in keys if k in t}} for t in flat]
    return tools or None


def _session(row: dict[str, Any]) -> str | None:
    names = ("litellm_session_id", "session_id")
    return get_text(row, *names) or get_text(get_dict(row, "metadata"), *names)


def _detect(head: Head) -> bool:
    first = head.value[0] if isinstance(head.value, list) and head.value else head.value
    row = head.rows[0] if head.rows else first
    return (
        isinstance(row, dict) and "call_type" in row and ("startTime" in row or "completionStartTime" in row)
    )


FORMAT = Format(
    name="litellm",
    title="LiteLLM standard logging payload",
    fidelity="messages",
    lost="messages where the proxy does not log them; TTFT of /v1/messages; failed requests",
    detect=_detect,
    read=_read,
)
