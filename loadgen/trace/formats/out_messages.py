"""Exports that keep text: vLLM multi-turn, the LMCache RFC's rows, OTel GenAI spans, AIPerf rows."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import orjson

from loadgen.errors import InputError
from loadgen.trace.formats.base import Report
from loadgen.trace.formats.messages import text_of
from loadgen.trace.model import Message, Session, Turn
from loadgen.trace.reader import TraceFile
from loadgen.trace.timeline import Timeline


def need_text(trace: TraceFile) -> None:
    if trace.header.fidelity in ("blocks", "lengths"):
        raise InputError(
            f"{trace.path} holds no text (fidelity {trace.header.fidelity}); fill it first with `loadgen trace fill`"
        )


def resolved(trace: TraceFile, message: Message) -> Message:
    """The message with its blob's text in place, without `raw`."""
    content = message.get("content")
    if isinstance(content, dict):
        ref = str(content["blob"])
        blob = trace.blob(ref)
        text = blob.json if blob.file is None else trace.blob_path(ref).read_text(encoding="utf-8")
        message = {**message, "content": text if isinstance(text, str) else text_of(text)}
    return {key: value for key, value in message.items() if key != "raw"}


def prompts(trace: TraceFile, session: Session) -> Iterator[tuple[Turn, list[Message], int]]:
    """Each record with its whole prompt (system first) and how many of its messages are new since the one before."""
    head: list[Message] = []
    if session.system is not None:
        head = [{"role": "system", "content": text_of(trace.blob(session.system).json)}]
    base: list[Message] = []
    prompt: list[Message] = []
    answer: Message | None = None
    index = -1
    for turn in trace.turns(session.id):
        if turn.index != index:
            base = prompt if answer is None else [*prompt, answer]
            index = turn.index
        kept = len(prompt)
        if turn.append is not None:
            kept = len(base) if turn.keep is None else turn.keep
            prompt = [*base[:kept], *(resolved(trace, message) for message in turn.append)]
        answer = None if turn.answer is None else resolved(trace, turn.answer)
        yield turn, [*head, *prompt], len(prompt) - kept


def _tools(trace: TraceFile, session: Session) -> Any:
    return None if session.tools is None else trace.blob(session.tools).json


def vllm(trace: TraceFile, report: Report) -> Iterator[bytes]:
    """One conversation a session, user and assistant in turn, as the benchmark wants it: the rest becomes user text."""
    need_text(trace)
    yield b"["
    for number, session in enumerate(trace.sessions):
        conversation: list[Message] = []
        for turn, prompt, _ in prompts(trace, session):
            if turn.keep is not None:
                report.note("rewind or compaction: only the last prompt of a session is kept", session.id)
            conversation = prompt + ([] if turn.answer is None else [resolved(trace, turn.answer)])
        rows: list[dict[str, str]] = []
        for message in conversation:
            role = "assistant" if message["role"] == "assistant" else "user"
            if message["role"] not in ("user", "assistant") or message.get("tool_calls"):
                report.note("message of another role or with tool calls, written as plain text", session.id)
            text = text_of(message.get("content")) or "".join(
                call["function"]["arguments"] for call in message.get("tool_calls", ())
            )
            if rows and rows[-1]["role"] == role:
                rows[-1]["content"] += f"\n\n{text}"
            else:
                rows.append({"role": role, "content": text})
        yield (b",\n" if number else b"\n") + orjson.dumps({"id": session.id, "messages": rows})
    yield b"\n]\n"


def lmcache(trace: TraceFile, report: Report) -> Iterator[bytes]:
    """One row a turn in order of their starts: "role: text" blocks as one text. Roles and tool calls become text."""
    need_text(trace)
    for start, session, turn, prompt in _timed(trace):
        row = {
            "timestamp": round(start * 1e6),
            "input": "\n".join(f"{message['role']}: {_as_text(message)}" for message in prompt),
            "output": "" if turn.answer is None else _as_text(resolved(trace, turn.answer)),
            "session_id": session.id,
        }
        yield orjson.dumps(row) + b"\n"
    if any(session.tools for session in trace.sessions):
        report.note("tool definitions are left out: the format has none")


def _as_text(message: Message) -> str:
    calls = "".join(
        f"\n[{call['function']['name']}] {call['function']['arguments']}"
        for call in message.get("tool_calls", ())
    )
    return f"{text_of(message.get('content'))}{calls}"


def otel(trace: TraceFile, report: Report) -> Iterator[bytes]:
    """One span a turn, in inference-perf's file form; families share `gen_ai.conversation.id`."""
    need_text(trace)
    roots = {session.id: session.parent.session for session in trace.sessions if session.parent is not None}
    yield b'{"trace_id":' + orjson.dumps(trace.header.name or "trace") + b',"spans":['
    for number, (start, session, turn, prompt) in enumerate(_timed(trace)):
        root = session.id
        while root in roots:
            root = roots[root]
        seen = turn.seen
        end = start + (seen.e2e_s or 0.0 if seen is not None else 0.0)
        values: dict[str, Any] = {
            "gen_ai.operation.name": "chat",
            "gen_ai.conversation.id": root,
            "gen_ai.agent.id": session.id,
            "gen_ai.input.messages": orjson.dumps(prompt).decode(),
            "gen_ai.output.messages": None
            if turn.answer is None
            else orjson.dumps([resolved(trace, turn.answer)]).decode(),
            "gen_ai.usage.input_tokens": turn.input_tokens,
            "gen_ai.usage.output_tokens": turn.output_tokens,
            "gen_ai.usage.cache_read.input_tokens": turn.cached_tokens,
            "gen_ai.usage.reasoning.output_tokens": turn.reasoning_tokens,
            "gen_ai.response.time_to_first_chunk": None if seen is None else seen.ttft_s,
            "gen_ai.response.finish_reasons": None if turn.stop is None else [turn.stop],
            "gen_ai.tool.definitions": None
            if (tools := _tools(trace, session)) is None
            else orjson.dumps(tools).decode(),
        }
        span = {
            "trace_id": root,
            "span_id": f"{number:016x}",
            "name": "chat",
            "start_time": _iso(start),
            "end_time": _iso(end),
            "attributes": {key: value for key, value in values.items() if value is not None},
        }
        yield (b",\n" if number else b"\n") + orjson.dumps(span)
    yield b"\n]}\n"


def _iso(at: float) -> str:
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def aiperf(trace: TraceFile, report: Report) -> Iterator[bytes]:
    """AIPerf's Mooncake-type rows with messages: what each turn adds, with the delay before it in milliseconds.

    AIPerf puts the answers itself. A session that rewinds starts anew under another id, with its whole prompt.
    """
    need_text(trace)
    for session in trace.sessions:
        name, parts = session.id, 0
        for turn, prompt, new in prompts(trace, session):
            if turn.attempt > 1:
                report.skip("retry: the format has none", session.id)
                continue
            fresh = turn.index == 0 or turn.keep is not None
            if fresh and turn.index:
                parts += 1
                name = f"{session.id}~{parts}"
                report.note("rewind or compaction: the session goes on under another id", session.id)
            row: dict[str, Any] = {
                "session_id": name,
                "messages": prompt if fresh else prompt[len(prompt) - new :],
            }
            if turn.output_tokens is not None:
                row["output_length"] = turn.output_tokens
            if turn.index == 0:
                row["timestamp"] = round(session.start_s * 1000)
            elif turn.gap is not None:
                row["delay"] = round(turn.gap.s * 1000)
            if (tools := _tools(trace, session)) is not None and fresh:
                row["tools"] = tools
            yield orjson.dumps(row) + b"\n"
        if session.parent is not None:
            report.note("sub-agent written as a session of its own", session.id)


def _timed(trace: TraceFile) -> Iterator[tuple[float, Session, Turn, list[Message]]]:
    """All turns by start. One session's prompts are held at a time a session is open."""
    open_prompts: dict[int, Iterator[tuple[Turn, list[Message], int]]] = {}
    for start, _, number, _ in Timeline(trace).in_order():
        session = trace.sessions[number]
        if number not in open_prompts:
            open_prompts[number] = prompts(trace, session)
        turn, prompt, _ = next(open_prompts[number])
        yield start, session, turn, prompt
