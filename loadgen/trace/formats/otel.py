"""OpenTelemetry GenAI spans: inference-perf's files, OTLP/JSON exports, one JSON object or one a line.

Names of the present conventions and of those before are read. Sessions come from `gen_ai.conversation.id` or a
session attribute, else from the trace id; within one, calls are chained by content.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import orjson

from loadgen.trace.formats.base import Agent, Call, Format, Head, Report
from loadgen.trace.formats.chains import Logged, families
from loadgen.trace.formats.messages import (
    assistant,
    from_openai,
    split_system,
    text_of,
    tool_call,
    tool_result,
)
from loadgen.trace.formats.rows import (
    get_count,
    get_dict,
    get_list,
    get_number,
    get_text,
    json_document,
    json_rows,
    seconds,
)
from loadgen.trace.model import Message

_CALLS = ("chat", "text_completion", "generate_content")
_SESSION = ("gen_ai.conversation.id", "session.id", "exgentic.session.id", "lmcache.session_id")


def _read(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    logged = []
    for path in files:
        for where, document in _documents(path, report):
            for span in _spans(document):
                with report.tolerate("malformed span", where):
                    entry = _logged(span, report, where)
                    if entry is not None:
                        logged.append(entry)
    yield from families(logged, "otel")


def _documents(path: Path, report: Report) -> Iterator[tuple[str, Any]]:
    if path.suffix == ".json":
        yield str(path), json_document(path, report)
    else:
        for number, row in json_rows(path, report):
            yield f"{path}:{number}", row


def _spans(document: Any) -> Iterator[dict[str, Any]]:
    for span in get_list(document, "spans"):
        if isinstance(span, dict):
            yield span
    for resource in get_list(document, "resourceSpans"):
        for scope in get_list(resource, "scopeSpans"):
            yield from (span for span in get_list(scope, "spans") if isinstance(span, dict))
    if (
        isinstance(document, dict)
        and "attributes" in document
        and ("span_id" in document or "spanId" in document)
    ):
        yield document


def _attributes(span: dict[str, Any]) -> dict[str, Any]:
    """OTLP writes a list of {key, value: {stringValue: …}}, others an object."""
    found = span.get("attributes")
    if isinstance(found, dict):
        return found
    return {
        str(row["key"]): next(iter(get_dict(row, "value").values()), None)
        for row in get_list(span, "attributes")
        if isinstance(row, dict) and "key" in row
    }


def _logged(span: dict[str, Any], report: Report, where: str) -> Logged | None:
    attributes = _attributes(span)
    operation = get_text(attributes, "gen_ai.operation.name")
    name = get_text(span, "name") or ""
    if (operation or name.split(" ")[0]) not in _CALLS and not (
        operation is None and "gen_ai.input.messages" in attributes
    ):
        report.skip(f"span that is no model call ({(operation or name)[:40] or 'unnamed'})", where)
        return None
    system_message, prompt = split_system(
        _messages(attributes.get("gen_ai.input.messages", attributes.get("gen_ai.prompt")))
    )
    system = text_of(_decoded(attributes.get("gen_ai.system_instructions"))) or system_message
    if not prompt:
        report.note("span without its messages; an empty message stands for the prompt", where)
        prompt = [{"role": "user", "content": ""}]
    answers = _messages(attributes.get("gen_ai.output.messages", attributes.get("gen_ai.completion")))
    text = get_text(attributes, "gen_ai.output.text")
    start, end = _time(span, "start_time", "startTimeUnixNano"), _time(span, "end_time", "endTimeUnixNano")
    first = get_number(attributes, "gen_ai.response.time_to_first_chunk")
    status = get_dict(span, "status")
    failed = status.get("code") in (2, "STATUS_CODE_ERROR", "ERROR")
    call = Call(
        prompt=prompt,
        answer=None if failed else (answers[-1] if answers else assistant(text) if text else None),
        start_s=start,
        first_s=None if start is None or first is None else start + first,
        end_s=end,
        input_tokens=_count(attributes, "gen_ai.usage.input_tokens", "gen_ai.usage.prompt_tokens"),
        output_tokens=_count(attributes, "gen_ai.usage.output_tokens", "gen_ai.usage.completion_tokens"),
        reasoning_tokens=_count(attributes, "gen_ai.usage.reasoning.output_tokens"),
        cached_tokens=_count(attributes, "gen_ai.usage.cache_read.input_tokens"),
        stop="error" if failed else _stop(attributes),
    )
    if call.answer is not None and call.answer["role"] != "assistant":
        call.answer = None
    key = get_text(attributes, *_SESSION) or get_text(span, "trace_id", "traceId") or ""
    return Logged(call, key, system, _decoded(attributes.get("gen_ai.tool.definitions")) or None)


def _count(attributes: dict[str, Any], *names: str) -> int | None:
    """OTLP/JSON writes 64-bit integers as text."""
    for name in names:
        value = attributes.get(name)
        if isinstance(value, str) and value.isdecimal() and len(value) < 16:
            return int(value)
    return get_count(attributes, *names)


def _stop(attributes: dict[str, Any]) -> str | None:
    reasons = _decoded(attributes.get("gen_ai.response.finish_reasons"))
    return (
        str(reasons[0])
        if isinstance(reasons, list) and reasons
        else get_text(attributes, "gen_ai.response.finish_reasons")
    )


def _time(span: dict[str, Any], *names: str) -> float | None:
    return next((found for name in names if (found := seconds(span.get(name))) is not None), None)


def _decoded(value: Any) -> Any:
    """Content attributes are often JSON in a string."""
    if isinstance(value, str):
        try:
            return orjson.loads(value)
        except orjson.JSONDecodeError:
            return value
    return value


def _messages(value: Any) -> list[Message]:
    rows = _decoded(value)
    if isinstance(rows, str):
        return [{"role": "user", "content": rows}]
    found: list[Message] = []
    for row in rows if isinstance(rows, list) else ():
        if isinstance(row, dict) and isinstance(row.get("parts"), list):
            found.extend(_parts(row))
        elif (message := from_openai(row)) is not None:
            found.append(message)
    return found


def _parts(row: dict[str, Any]) -> list[Message]:
    """A message in the conventions' own shape: a role and typed parts."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    results: list[Message] = []
    for part in row["parts"]:
        kind = get_text(part, "type")
        if kind == "tool_call":
            calls.append(
                tool_call(get_text(part, "id") or "", get_text(part, "name") or "tool", part.get("arguments"))
            )
        elif kind == "tool_call_response":
            results.append(tool_result(get_text(part, "id") or "", part.get("response", part.get("result"))))
        elif kind in ("reasoning", "thinking"):
            thoughts.append(text_of(part))
        else:
            texts.append(text_of(part))
    text = "\n".join(filter(None, texts))
    role = get_text(row, "role")
    if role == "assistant":
        return [assistant(text, calls, "\n".join(filter(None, thoughts)))]
    own: list[Message] = (
        [{"role": role if role in ("system", "developer", "user") else "user", "content": text}]
        if text or not results
        else []
    )
    return [*results, *own]


def _detect(head: Head) -> bool:
    return b'"gen_ai.' in head.data and (
        b'"spans"' in head.data or b'"resourceSpans"' in head.data or b'"attributes"' in head.data
    )


FORMAT = Format(
    name="otel",
    title="OpenTelemetry GenAI spans",
    fidelity="messages",
    lost="what the exporter left out: content is opt-in, tools often missing; TTFT where no time_to_first_chunk",
    detect=_detect,
    read=_read,
)
