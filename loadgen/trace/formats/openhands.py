"""OpenHands: V0 `output.jsonl`, completion logs of V0 and of the SDK, event folders of the SDK.

Completion logs hold the wire bodies of every call; the other two only events, from which prompts are rebuilt.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

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


def _logs(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """One file a call; `timestamp` is the end. Files of one folder are one conversation and its helpers."""
    logged = []
    for path in files:
        document = json_document(path, report)
        if not isinstance(document, dict) or not get_dict(document, "response"):
            report.skip("log of a failed call, without a response", str(path))
            continue
        with report.tolerate("malformed completion log", str(path)):
            prompt = [m for row in get_list(document, "messages") if (m := from_openai(row)) is not None]
            system, prompt = split_system(prompt)
            response = get_dict(document, "response")
            choice = next(iter(get_list(response, "choices")), None)
            usage, summary = get_dict(response, "usage"), get_dict(document, "usage_summary")
            end, latency = seconds(document.get("timestamp")), get_number(document, "latency_sec")
            call = Call(
                prompt=prompt,
                answer=from_openai(get_dict(choice, "message")),
                start_s=None if end is None or latency is None else end - latency,
                end_s=end,
                input_tokens=get_count(summary, "prompt_tokens") or get_count(usage, "prompt_tokens"),
                output_tokens=get_count(summary, "completion_tokens")
                or get_count(usage, "completion_tokens"),
                reasoning_tokens=get_count(summary, "reasoning_tokens"),
                cached_tokens=_first(
                    get_count(summary, "cache_read_tokens"),
                    get_count(get_dict(usage, "prompt_tokens_details"), "cached_tokens"),
                ),
                stop=get_text(choice, "finish_reason"),
            )
            tools = get_list(document, "tools") or get_list(get_dict(document, "kwargs"), "tools") or None
            if prompt:
                logged.append((end or 0.0, Logged(call, str(path.parent.name), system, tools)))
            else:
                report.skip("call without messages", str(path))
    logged.sort(key=lambda entry: entry[0])
    yield from families((entry for _, entry in logged), "openhands")


def _first(*values: int | None) -> int | None:
    return next((value for value in values if value is not None), None)


def _output(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """V0: one instance a line."""
    for path in files:
        for number, row in json_rows(path, report):
            with report.tolerate("malformed instance", f"{path}:{number}"):
                events: list[dict[str, Any]] = []
                for event in get_list(row, "history"):
                    events.extend(
                        e for e in (event if isinstance(event, list) else [event]) if isinstance(e, dict)
                    )
                yield [
                    _Instance(get_text(row, "instance_id") or f"{path.stem}:{number}", row, report).read(
                        events
                    )
                ]


class _Instance:
    """Rebuilds the prompts of one V0 history: calls are the model responses that actions name."""

    def __init__(self, name: str, row: dict[str, Any], report: Report) -> None:
        self.agent = Agent(id=name, calls=[])
        self.report = report
        metrics = get_dict(row, "metrics")
        self.usages = {get_text(u, "response_id"): u for u in get_list(metrics, "token_usages")}
        self.latencies = {
            get_text(u, "response_id"): get_number(u, "latency")
            for u in get_list(metrics, "response_latencies")
        }
        self.prompt: list[Message] = []
        self.open: str | None = None  # response id of the last call
        self.instruction = get_text(row, "instruction")

    def read(self, events: list[dict[str, Any]]) -> Agent:
        for event in events:
            action, args = get_text(event, "action"), get_dict(event, "args")
            metadata = get_dict(event, "tool_call_metadata")
            response = get_dict(metadata, "model_response")
            if action == "system":
                self.agent.system = get_text(args, "content")
                self.agent.tools = get_list(args, "tools") or None
            elif "observation" in event:
                self._observation(event, metadata)
            elif action and get_text(event, "source") == "user":
                if action == "message":
                    self.prompt.append({"role": "user", "content": get_text(args, "content") or ""})
            elif action and get_text(event, "source") == "agent":
                self._action(event, args, metadata, response)
        return self.agent

    def _observation(self, event: dict[str, Any], metadata: dict[str, Any]) -> None:
        text = text_of(event.get("content"))
        call_id = get_text(metadata, "tool_call_id")
        if call_id:
            self.prompt.append(tool_result(call_id, text))
        elif get_text(event, "observation") not in ("recall", "agent_state_changed", "null", None) and text:
            self.prompt.append({"role": "user", "content": text})

    def _action(
        self, event: dict[str, Any], args: dict[str, Any], metadata: dict[str, Any], response: dict[str, Any]
    ) -> None:
        if get_text(event, "action") in ("recall", "change_agent_state", "null"):
            return
        response_id = get_text(response, "id")
        choice = next(iter(get_list(response, "choices")), None)
        answer = from_openai(get_dict(choice, "message"))
        if answer is None:
            calls = (
                [
                    tool_call(
                        get_text(metadata, "tool_call_id") or "",
                        get_text(metadata, "function_name") or "tool",
                        args,
                    )
                ]
                if metadata
                else None
            )
            answer = assistant(get_text(args, "thought", "content") or "", calls)
        if response_id is not None and response_id == self.open:
            return  # a further tool call of the same response
        self.open = response_id
        if not self.prompt and self.instruction:
            self.prompt.append({"role": "user", "content": self.instruction})
        if not self.prompt:
            self.report.skip("call without a prompt", self.agent.id)
            return
        usage = self.usages.get(response_id, {}) if response_id else {}
        end, latency = (
            seconds(event.get("timestamp")),
            self.latencies.get(response_id) if response_id else None,
        )
        self.agent.calls.append(
            Call(
                prompt=list(self.prompt),
                answer=answer,
                start_s=None if end is None or latency is None else end - latency,
                end_s=end,
                input_tokens=get_count(usage, "prompt_tokens"),
                output_tokens=get_count(usage, "completion_tokens"),
                cached_tokens=get_count(usage, "cache_read_tokens"),
                stop=get_text(choice, "finish_reason"),
                gap_kind="tool" if self.prompt[-1]["role"] == "tool" or self.agent.calls else None,
            )
        )
        self.prompt.append(answer)


def _events(files: Sequence[Path], report: Report) -> Iterator[list[Agent]]:
    """SDK: `events/event-NNNNN-<id>.json` one file an event, or the same as lines. One folder or file a conversation."""
    conversations: dict[str, list[tuple[str, dict[str, Any]]]] = defaultdict(list)
    for path in sorted(files):
        if path.name == "base_state.json":
            continue
        if path.suffix == ".json":
            event = json_document(path, report)
            if isinstance(event, dict):
                conversations[path.parent.parent.name or "events"].append((str(path), event))
        else:
            conversations[path.parent.name].extend(
                (f"{path}:{number}", row) for number, row in json_rows(path, report)
            )
    for name, events in conversations.items():
        agent = Agent(id=name, calls=[])
        with report.tolerate("malformed conversation", name):
            _sdk(agent, events, report)
        yield [agent]


def _sdk(agent: Agent, events: list[tuple[str, dict[str, Any]]], report: Report) -> None:
    prompt: list[Message] = []
    open_id: str | None = None
    known: dict[
        str, dict[str, Any]
    ] = {}  # tool calls by id, so that only observations of known actions are results
    last: float | None = None
    for where, event in events:
        kind, at = get_text(event, "kind"), seconds(event.get("timestamp"))
        if kind == "SystemPromptEvent":
            agent.system = text_of(event.get("system_prompt")) or None
            agent.tools = get_list(event, "tools") or None
        elif kind == "MessageEvent":
            message = from_openai(get_dict(event, "llm_message"))
            if message is None:
                report.skip("message event of unknown shape", where)
                continue
            if message["role"] == "assistant":
                agent.calls.append(
                    Call(prompt=_prompt(prompt, agent, report), answer=message, start_s=last, end_s=at)
                )
            prompt.append(message)
            last = at or last
        elif kind == "ActionEvent":
            raw = get_dict(event, "tool_call")
            function = get_dict(raw, "function") or raw
            call = tool_call(
                get_text(event, "tool_call_id") or "",
                get_text(function, "name") or "tool",
                function.get("arguments"),
            )
            known[call["id"]] = call
            response_id = get_text(event, "llm_response_id")
            if (
                response_id is not None
                and response_id == open_id
                and prompt
                and prompt[-1]["role"] == "assistant"
            ):
                prompt[-1].setdefault("tool_calls", []).append(call)
                continue
            open_id = response_id
            answer = assistant(
                text_of(event.get("thought")), [call], get_text(event, "reasoning_content") or ""
            )
            agent.calls.append(
                Call(prompt=_prompt(prompt, agent, report), answer=answer, start_s=last, end_s=at)
            )
            prompt.append(answer)
        elif kind in ("ObservationEvent", "AgentErrorEvent", "UserRejectObservation"):
            call_id = get_text(event, "tool_call_id") or ""
            content = get_dict(event, "observation").get("content", event.get("error"))
            if call_id not in known:
                report.note("tool result whose call is not in the log; taken as user text", where)
                prompt.append({"role": "user", "content": text_of(content)})
            else:
                prompt.append(tool_result(call_id, content))
            last = at or last
        elif kind == "Condensation":
            gone = set(map(str, get_list(event, "forgotten_event_ids")))
            report.note(
                f"condensation that forgets {len(gone)} events; later prompts are shorter in reality", where
            )
        elif kind != "ConversationStateUpdateEvent":
            report.skip(f"event of kind {str(kind)[:40]}", where)


def _prompt(prompt: list[Message], agent: Agent, report: Report) -> list[Message]:
    if not prompt:
        report.note("call whose prompt is not in the log; an empty message stands for it", agent.id)
        prompt.append({"role": "user", "content": ""})
    return list(prompt)


def _is_log(head: Head) -> bool:
    return (
        head.path.suffix == ".json"
        and b'"messages"' in head.data[:200]
        and (b'"kwargs"' in head.data or b'"response"' in head.data or b'"latency_sec"' in head.data)
    )


def _is_event(head: Head) -> bool:
    kinds = (
        "ActionEvent",
        "ObservationEvent",
        "MessageEvent",
        "SystemPromptEvent",
        "ConversationStateUpdateEvent",
        "Condensation",
    )
    rows = list(head.rows) or ([head.value] if isinstance(head.value, dict) else [])
    return any(get_text(row, "kind") in kinds for row in rows)


OUTPUT = Format(
    name="openhands-output",
    title="OpenHands V0 output.jsonl",
    fidelity="messages",
    lost="exact prompts (rebuilt from events), TTFT",
    detect=lambda head: (
        any("instance_id" in row and "history" in row for row in head.rows)
        or (head.data[:40].lstrip().startswith(b'{"instance_id"'))
    ),
    read=_output,
)
LOGS = Format(
    name="openhands-completions",
    title="OpenHands completion logs (V0 and SDK)",
    fidelity="bodies",
    lost="TTFT; V0 logs tell only the end of a call",
    detect=_is_log,
    read=_logs,
)
EVENTS = Format(
    name="openhands-events",
    title="OpenHands SDK events",
    fidelity="messages",
    lost="token counts a call, condensed prompts, TTFT; request start is the last input event's time",
    detect=_is_event,
    read=_events,
)
