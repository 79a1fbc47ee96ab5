"""The messages of one opencode session → calls, as versions 1.0 (folders) and 1.2 to 1.18 (SQLite) write them.

One assistant message is one call (a `step-finish` part ends it); messages of other writers may hold several.
`tokens.input` excludes the cache. `tokens.output` holds the reasoning up to 1.2, and excludes it later: `total` tells.

A compaction is a user message with a `compaction` part, then an assistant message with `summary`. What follows is
sent after "What did we do so far?" and the summary, with the messages from `tail_start_id` on in between.
A command of the user's own shell is an assistant message with a tool part, but no step: no model was asked.
"""

from __future__ import annotations

from typing import Any

from loadgen.trace.formats.base import Agent, Call, Report
from loadgen.trace.formats.messages import assistant, text_of, tool_call, tool_result
from loadgen.trace.formats.rows import get_count, get_dict, get_text, seconds
from loadgen.trace.model import Message

Part = dict[str, Any]

_QUESTION = "What did we do so far?"
"""What opencode sends in a compaction's place."""
_PRUNED = "[Old tool result content cleared]"
"""What it sends in place of a tool's output once `state.time.compacted` is set."""
_TRANSCRIPT = (1, 18, 15)
"""From this version on (1.18.14 does not, 1.18.17 does) a summary is asked for with the conversation as one text, not
with its messages."""


class SessionReader:
    """Reads a session's messages in order. `tasks`: sub-session ids and the tool calls that started them."""

    def __init__(self, name: str, version: str | None, report: Report) -> None:
        self.agent = Agent(id=name, calls=[])
        self.tasks: dict[str, str] = {}
        self._report = report
        self._as_text = _numbers(version) >= _TRANSCRIPT
        self._prompt: list[Message] = []
        self._places: dict[str, int] = {}  # message id -> where its messages begin in the prompt
        self._compaction: Part | None = None
        self._by_itself = False  # the last user message came from opencode, not from a person
        self._prunings: list[tuple[float, Message]] = []

    def read(self, messages: list[dict[str, Any]], parts: dict[str, list[Part]]) -> Agent:
        for message in messages:
            name = str(message.get("id"))
            mine = parts.get(name, [])
            self._places[name] = len(self._prompt)
            if get_text(message, "role") == "user":
                self._user(mine)
            elif get_text(message, "role") == "assistant":
                self._assistant(message, mine)
            else:
                self._report.skip("message of unknown role", name)
        return self.agent

    def _user(self, parts: list[Part]) -> None:
        compaction = next((part for part in parts if get_text(part, "type") == "compaction"), None)
        if compaction is not None:
            self._compaction, self._by_itself = compaction, compaction.get("auto") is True
            self._prompt.append({"role": "user", "content": _QUESTION})
            return
        texts = [
            text_of(part)
            for part in parts
            if get_text(part, "type") == "text" and part.get("ignored") is not True
        ]
        self._by_itself = bool(texts) and all(part.get("synthetic") is True for part in parts)
        # the text of a file that was attached stands in a text part of its own
        texts += [
            f"[{get_text(part, 'mime') or 'file'}]"
            for part in parts
            if get_text(part, "type") == "file" and not _is_text(get_text(part, "mime"))
        ]
        self._prompt.append({"role": "user", "content": "\n".join(filter(None, texts))})

    def _assistant(self, message: dict[str, Any], parts: list[Part]) -> None:
        """Parts up to a `step-finish` are one call; a message without one is a call as a whole."""
        kinds = {get_text(part, "type") for part in parts}
        error = get_text(get_dict(message, "error"), "name")
        usage = get_dict(message, "tokens")
        told = any(get_count(usage, name) for name in ("input", "output"))
        if error and not kinds & {"text", "tool", "reasoning"} and not told:
            self._report.skip("request that failed or was aborted before an answer began", self.agent.id)
            return
        if not error and not told and "tool" in kinds and not kinds & {"step-start", "step-finish", "text"}:
            self._answer(parts)  # the user's own shell
            return
        time = get_dict(message, "time")
        start, end = seconds(time.get("created")), seconds(time.get("completed"))
        stop = (
            "aborted" if error == "MessageAbortedError" else "error" if error else get_text(message, "finish")
        )
        if message.get("summary") is True:
            self._summary(message, parts, start, end, stop)
            return
        step: list[Part] = []
        whole = "step-finish" not in kinds
        for part in parts:
            if get_text(part, "type") == "step-finish":
                is_last = not any(
                    get_text(p, "type") == "step-finish" for p in parts[parts.index(part) + 1 :]
                )
                done = end if is_last else None
                start = self._call(step, get_dict(part, "tokens"), get_text(part, "reason"), start, done)
                step = []
            else:
                step.append(part)
        if whole or any(get_text(part, "type") in ("text", "tool") for part in step):
            self._call(step, usage if whole and told else {}, stop, start, end)

    def _summary(
        self,
        message: dict[str, Any],
        parts: list[Part],
        start: float | None,
        end: float | None,
        stop: str | None,
    ) -> None:
        """The call that asks for a summary, and the prompt after it. Its instructions are not in the log."""
        asked = self._compaction is not None
        kept = self._prompt[:-1] if asked else self._prompt  # without the question that stands for it later
        tail_start = self._places.get(get_text(self._compaction, "tail_start_id") or "")
        tail = kept[tail_start:] if tail_start is not None else []
        if self._as_text:
            covered = kept[:tail_start] if tail_start is not None else kept
            self._prompt = [{"role": "user", "content": _transcript(covered)}]
        self._report.note("compaction; its instructions are not in the log", self.agent.id)
        self._call(parts, get_dict(message, "tokens"), stop, start, end)
        if stop in ("aborted", "error"):
            self._prompt = [*kept, {"role": "user", "content": _QUESTION}] if asked else kept
        else:
            head: list[Message] = [{"role": "user", "content": _QUESTION}] if asked else []
            answer = self.agent.calls[-1].answer
            self._prompt = [*head, *([answer] if answer else []), *tail]
            if tail_start is not None:  # a later compaction may keep a part of this tail
                moved = len(self._prompt) - len(tail) - tail_start
                self._places = {k: v + moved for k, v in self._places.items() if v >= tail_start}
            else:
                self._places = {}
        self._compaction = None

    def _call(
        self,
        step: list[Part],
        tokens: dict[str, Any],
        stop: str | None,
        start: float | None,
        completed: float | None,
    ) -> float | None:
        """One call and its tool results; returns the time at which the tools had ended, the start of the next call."""
        if not self._prompt:
            self._report.note(
                "call whose prompt is not in the log; an empty message stands for it", self.agent.id
            )
            self._prompt.append({"role": "user", "content": ""})
        self._prune(start)
        prompt = list(self._prompt)
        answer = self._answer(step)
        cache = get_dict(tokens, "cache")
        plain, read, written = get_count(tokens, "input"), get_count(cache, "read"), get_count(cache, "write")
        reasoning = get_count(tokens, "reasoning")
        began = _times(step, "start", "tool")
        # a tool starts when its call has come, a text ends with its last token: nearer to the answer's end than
        # `completed`, which holds the tools' run time and a snapshot of the files
        ended = max(began) if began else max(_times(step, "end", "text", "reasoning"), default=completed)
        self.agent.calls.append(
            Call(
                prompt=prompt,
                answer=answer,
                start_s=start,
                end_s=ended,
                input_tokens=None if plain is None else plain + (read or 0) + (written or 0),
                output_tokens=_output(tokens),
                reasoning_tokens=reasoning,
                cached_tokens=read,
                stop=stop,
                gap_kind="tool" if self._by_itself else None,
            )
        )
        return max(_times(step, "end", "tool"), default=ended)

    def _answer(self, step: list[Part]) -> Message:
        """The answer that the parts make; it and its tools' results go into the prompt."""
        texts = [text_of(part) for part in step if get_text(part, "type") == "text"]
        thoughts = [text_of(part) for part in step if get_text(part, "type") == "reasoning"]
        tools = [(part, get_dict(part, "state")) for part in step if get_text(part, "type") == "tool"]
        calls = [
            tool_call(get_text(part, "callID") or "", get_text(part, "tool") or "tool", state.get("input"))
            for part, state in tools
        ]
        answer = assistant("\n".join(filter(None, texts)), calls or None, "\n".join(filter(None, thoughts)))
        self._prompt.append(answer)
        for part, state in tools:
            call_id = get_text(part, "callID") or ""
            result = tool_result(call_id, state.get("output", state.get("error")))
            self._prompt.append(result)
            if (child := get_text(get_dict(state, "metadata"), "sessionId")) is not None:
                self.tasks[child] = call_id
            if (pruned := seconds(get_dict(state, "time").get("compacted"))) is not None:
                self._prunings.append((pruned, result))
        return answer

    def _prune(self, start: float | None) -> None:
        """Tool outputs that opencode had cleared before the call; the log keeps them."""
        due = [result for at, result in self._prunings if start is not None and at <= start]
        if due:
            self._report.note("tool result that opencode cleared later", self.agent.id, len(due))
            self._prompt = [
                {**m, "content": _PRUNED} if any(m is result for result in due) else m for m in self._prompt
            ]
            self._prunings = [(at, r) for at, r in self._prunings if not any(r is d for d in due)]


def _numbers(version: str | None) -> tuple[int, ...]:
    return tuple(int(piece) for piece in (version or "").split(".") if piece.isdigit())


def _is_text(mime: str | None) -> bool:
    return mime is not None and (mime.startswith("text/plain") or mime == "application/x-directory")


def _times(parts: list[Part], which: str, *kinds: str) -> list[float]:
    """Start or end times of the parts of some kinds, seconds; a tool's stand in its state."""
    found = []
    for part in parts:
        kind = get_text(part, "type")
        if kind in kinds:
            at = seconds(get_dict(get_dict(part, "state") if kind == "tool" else part, "time").get(which))
            if at is not None:
                found.append(at)
    return found


def _output(tokens: dict[str, Any]) -> int | None:
    """Output tokens with reasoning. The sum in `total` tells whether `output` holds it; without one it does."""
    output, reasoning = get_count(tokens, "output"), get_count(tokens, "reasoning") or 0
    total, cache = get_count(tokens, "total"), get_dict(tokens, "cache")
    if output is None or total is None:
        return output
    rest = sum(
        count or 0
        for count in (get_count(tokens, "input"), get_count(cache, "read"), get_count(cache, "write"))
    )
    return output + reasoning if total == rest + output + reasoning else output


def _transcript(messages: list[Message]) -> str:
    """The conversation as one text, in about the words of opencode 1.18."""
    lines = []
    for message in messages:
        text = text_of(message["content"])
        if message["role"] == "assistant":
            if message.get("reasoning"):
                lines.append(f"[Assistant reasoning]: {message['reasoning']}")
            if text:
                lines.append(f"[Assistant]: {text}")
            lines += [
                f"[Assistant tool call]: {call['function']['name']}({call['function']['arguments']})"
                for call in message.get("tool_calls", ())
            ]
        else:
            lines.append(f"[{'Tool result' if message['role'] == 'tool' else 'User'}]: {text}")
    return "Here is the conversation so far:\n\n" + "\n".join(lines)
