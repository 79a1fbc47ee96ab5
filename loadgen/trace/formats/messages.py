"""Foreign message shapes to the trace's one shape: OpenAI chat with tool calls; reasoning text under `reasoning`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import orjson

from loadgen.trace.check import ROLES
from loadgen.trace.formats.rows import get_dict, get_list, get_text
from loadgen.trace.model import Message


def text_of(content: Any) -> str:
    """All text of a content field: a string, parts with `text` or `content`, or nothing."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, (text_of(part) for part in content)))
    if isinstance(content, dict):
        return get_text(content, "text") or text_of(content.get("content"))
    return ""


def dumps(value: Any) -> str:
    return orjson.dumps(value).decode()


def tool_call(call_id: str, name: str, arguments: Any) -> dict[str, Any]:
    text = arguments if isinstance(arguments, str) else dumps({} if arguments is None else arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def assistant(text: str, calls: list[dict[str, Any]] | None = None, reasoning: str = "") -> Message:
    """An assistant message; empty parts are left out, and text is null where there are only tool calls."""
    message: Message = {"role": "assistant", "content": text or (None if calls else "")}
    if reasoning:
        message["reasoning"] = reasoning
    if calls:
        message["tool_calls"] = calls
    return message


def tool_result(call_id: str, content: Any) -> Message:
    return {"role": "tool", "tool_call_id": call_id, "content": text_of(content)}


def _part(block: Any) -> dict[str, Any] | None:
    """An Anthropic or Responses content block as an OpenAI part; images and files keep their place, not their bytes."""
    if isinstance(block, str):
        return {"type": "text", "text": block}
    kind = get_text(block, "type")
    if kind in ("text", "input_text", "output_text", None):
        text = get_text(block, "text", "value")  # data sets write `value`
        return {"type": "text", "text": text} if text else None
    if kind == "file" and get_text(block, "content"):
        return {"type": "text", "text": f"{get_text(block, 'path') or ''}\n{block['content']}"}
    return {"type": "text", "text": f"[{kind}]"}


def parts(blocks: Iterable[Any]) -> str | list[dict[str, Any]]:
    """Content of several blocks: a string for one, a list of text parts for more."""
    found = [part for block in blocks if (part := _part(block)) is not None]
    return "" if not found else str(found[0]["text"]) if len(found) == 1 else found


def from_anthropic(role: str, content: Any) -> list[Message]:
    """One Anthropic message. A user message with tool results becomes tool messages and then what it says itself."""
    blocks = content if isinstance(content, list) else [content] if isinstance(content, str) else []
    if role == "assistant":
        return [anthropic_answer(blocks)]
    messages: list[Message] = []
    own: list[Any] = []
    for block in blocks:
        if isinstance(block, dict) and get_text(block, "type") == "tool_result":
            messages.append(tool_result(get_text(block, "tool_use_id") or "", block.get("content")))
        else:
            own.append(block)
    if own or not messages:
        messages.append({"role": "user", "content": parts(own)})
    return messages


def anthropic_answer(blocks: Iterable[Any]) -> Message:
    """Content blocks of one assistant message: text, thinking and tool calls."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for block in blocks:
        kind = get_text(block, "type")
        if isinstance(block, str):
            texts.append(block)
        elif kind == "text":
            texts.append(get_text(block, "text") or "")
        elif kind == "thinking":
            thoughts.append(get_text(block, "thinking") or "")
        elif kind == "tool_use":
            calls.append(
                tool_call(get_text(block, "id") or "", get_text(block, "name") or "tool", block.get("input"))
            )
        elif kind is not None:
            texts.append(f"[{kind}]")
    return assistant("\n".join(filter(None, texts)), calls, "\n".join(filter(None, thoughts)))


def anthropic_body(body: dict[str, Any]) -> tuple[Any, Any, list[Message]]:
    """System, tools and messages of an Anthropic request body."""
    messages: list[Message] = []
    for row in get_list(body, "messages"):
        if isinstance(row, dict):
            messages.extend(from_anthropic(get_text(row, "role") or "user", row.get("content")))
    system = body.get("system")
    return (parts(system) if isinstance(system, list) else system) or None, anthropic_tools(body), messages


def anthropic_tools(body: dict[str, Any]) -> list[dict[str, Any]] | None:
    """Tool definitions in OpenAI's shape."""
    tools = [
        {
            "type": "function",
            "function": {
                "name": get_text(tool, "name") or "tool",
                "description": get_text(tool, "description") or "",
                "parameters": get_dict(tool, "input_schema"),
            },
        }
        for tool in get_list(body, "tools")
        if isinstance(tool, dict)
    ]
    return tools or None


def from_openai(row: Any) -> Message | None:
    """One OpenAI chat message, without what no model sees; null where it is none."""
    role = get_text(row, "role")
    if role == "function":
        role = "tool"
    if role not in ROLES:
        return None
    content = row.get("content")
    message: Message = {"role": role, "content": parts(content) if isinstance(content, list) else None}
    if isinstance(content, str):
        message["content"] = content
    elif isinstance(content, dict):
        message["content"] = text_of(content)
    if reasoning := get_text(row, "reasoning", "reasoning_content"):
        message["reasoning"] = reasoning
    if role == "tool":
        message["tool_call_id"] = get_text(row, "tool_call_id") or ""
    calls = [
        tool_call(get_text(call, "id") or "", get_text(function, "name") or "tool", function.get("arguments"))
        for call in get_list(row, "tool_calls")
        if (function := get_dict(call, "function"))
    ]
    if calls:
        message["tool_calls"] = calls
    elif message["content"] is None:
        message["content"] = ""
    return message


def responses_answer(items: Iterable[Any]) -> Message:
    """Output items of the Responses API as one assistant message."""
    texts: list[str] = []
    thoughts: list[str] = []
    calls: list[dict[str, Any]] = []
    for item in items:
        kind = get_text(item, "type")
        if kind == "reasoning":
            thoughts.append(text_of(item.get("content")) or text_of(item.get("summary")))
        elif kind == "function_call":
            name = get_text(item, "name") or "tool"
            calls.append(tool_call(get_text(item, "call_id") or "", name, item.get("arguments")))
        elif isinstance(item, dict):
            texts.append(text_of(item.get("content")))
    return assistant("\n".join(filter(None, texts)), calls or None, "\n".join(filter(None, thoughts)))


def responses_messages(items: Iterable[Any]) -> list[Message]:
    """Input items of the Responses API as messages; the items of one answer become one again."""
    messages: list[Message] = []
    answer: list[Any] = []
    for item in [*items, None]:
        is_answer = get_text(item, "type") in ("reasoning", "function_call")
        if is_answer or get_text(item, "role") == "assistant":
            answer.append(item)
            continue
        if answer:
            messages.append(responses_answer(answer))
            answer = []
        if get_text(item, "type") == "function_call_output":
            messages.append(tool_result(get_text(item, "call_id") or "", item.get("output")))
        elif (message := from_openai(item)) is not None:
            messages.append(message)
    return messages


def split_system(messages: list[Message]) -> tuple[Any, list[Message]]:
    """The leading system message's content, which a session keeps once, and the rest."""
    if messages and messages[0]["role"] == "system":
        return messages[0]["content"] or None, messages[1:]
    return None, messages
