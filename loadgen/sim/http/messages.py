"""`/v1/messages` and `/v1/messages/count_tokens`: Anthropic's API as vLLM serves it."""

from __future__ import annotations

import uuid
from typing import Any

import orjson
from aiohttp import web

from loadgen.sim.http import errors, fields
from loadgen.sim.http.chat import spell
from loadgen.sim.http.generation import Format, Job, Usage, respond
from loadgen.sim.http.service import Service, check_sampling, job_options, whole_number
from loadgen.sim.prompt import content_text
from loadgen.sim.streams import Tokens
from loadgen.sim.words import Piece

_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}
_BLOCKS = {"text": "text", "think": "thinking", "tool": "tool_use"}


def to_chat(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Anthropic's conversation as chat messages: blocks in order, a tool result as a message of role tool."""
    fields.check(body)
    chat: list[dict[str, Any]] = []
    if body.get("system"):
        chat.append({"role": "system", "content": content_text(body["system"])})
    if "messages" not in body:
        raise errors.missing("messages", len(body))
    for message in fields.messages(body["messages"]):
        content = message.get("content")
        blocks = content if isinstance(content, list) else [{"type": "text", "text": content_text(content)}]
        made: dict[str, Any] = {"role": message["role"], "content": "", "tool_calls": []}
        for block in blocks:
            kind = block.get("type") if isinstance(block, dict) else None
            if kind == "text":
                made["content"] += str(block.get("text") or "")
            elif kind == "thinking":
                made["reasoning"] = str(block.get("thinking") or "")
            elif kind == "tool_use":
                made["tool_calls"].append({"name": block.get("name"), "arguments": block.get("input")})
            elif kind == "tool_result":
                chat.append({"role": "tool", "content": content_text(block.get("content"))})
        if made["content"] or made["tool_calls"] or made.get("reasoning"):
            chat.append(made)
    if not chat:
        raise errors.ApiError(
            400,
            "BadRequestError",
            "Cannot apply chat template to an empty conversation. Provide at least one message.",
        )
    return chat


def to_chat_tools(tools: Any) -> Any:
    """Anthropic's tools in OpenAI's shape, in which vLLM renders them for this API too."""
    if not isinstance(tools, list):
        return tools
    made = []
    for tool in tools:
        if not isinstance(tool, dict):
            return tools
        function = {"name": tool.get("name")}
        if tool.get("description") is not None:
            function["description"] = tool["description"]
        made.append({"type": "function", "function": function | {"parameters": tool.get("input_schema")}})
    return made


def make(service: Service, body: dict[str, Any]) -> tuple[Job, Format, bool]:
    """Validate and render the prompt. Runs in a thread when the body is large."""
    if "max_tokens" not in body:
        raise errors.missing("max_tokens", len(body))
    chat = to_chat(body)
    check_sampling(body)
    service.check_model(body)
    tokens = service.prompts.chat(chat, to_chat_tools(body.get("tools")))
    thinking = body.get("thinking")
    job = Job(
        tokens=tokens,
        max_tokens=service.room(len(tokens), whole_number(body, "max_tokens", 1), "max_completion_tokens"),
        think=bool(thinking and thinking.get("type") in ("enabled", "adaptive")),
        tool=_tool(body, chat, service.auto_tools),
        **job_options(body),
    )
    return job, MessagesFormat(service.profile.model, job.tool), bool(body.get("stream"))


def _tool(body: dict[str, Any], chat: list[dict[str, Any]], auto: bool) -> str | None:
    tools = body.get("tools") or []
    wanted = body.get("tool_choice") or {"type": "auto"}
    choice = wanted.get("type", "auto") if isinstance(wanted, dict) else wanted
    if choice == "tool":
        return fields.name_of(wanted)
    if not tools or choice == "none" or (choice == "auto" and (not auto or chat[-1]["role"] == "tool")):
        return None
    return fields.name_of(tools[0])


class MessagesFormat:
    def __init__(self, model: str, tool: str | None) -> None:
        self._id = f"chatcmpl-{uuid.uuid4().hex[:16]}"
        self._model = model
        self._tool = tool
        self._kind: str | None = None
        self._index = -1

    def start(self, prompt: Tokens) -> bytes:
        message: dict[str, Any] = {
            "id": self._id, "type": "message", "role": "assistant", "content": [], "model": self._model,
            "stop_reason": None, "stop_sequence": None, "usage": {"input_tokens": len(prompt), "output_tokens": 0},
        }  # fmt: skip
        return _event({"type": "message_start", "message": message})

    def token(self, piece: Piece, reason: str | None, usage: Usage) -> bytes:
        events = b""
        if piece.kind != self._kind:
            events = self._close()
            self._kind = piece.kind
            self._index += 1
            events += _event(
                {"type": "content_block_start", "content_block": self._block(""), "index": self._index}
            )
        if piece.kind == "text":
            delta = {"type": "text_delta", "text": piece.text}
        elif piece.kind == "think":
            delta = {"type": "thinking_delta", "thinking": piece.text}
        else:
            delta = {"type": "input_json_delta", "partial_json": piece.text}
        events += _event({"type": "content_block_delta", "delta": delta, "index": self._index})
        if reason is not None:
            stop = {"stop_reason": _REASONS[reason], "stop_sequence": None}
            events += self._close() + _event(
                {"type": "message_delta", "delta": stop, "usage": _counts(usage)}
            )
        return events

    def end(self, usage: Usage) -> bytes:
        return _event({"type": "message_stop"})

    def whole(self, prompt: Tokens, pieces: list[Piece], reason: str, usage: Usage) -> dict[str, Any]:
        content = []
        for kind in dict.fromkeys(piece.kind for piece in pieces):
            self._kind = kind
            content.append(self._block(spell(pieces, kind) or ""))
        return {
            "id": self._id, "type": "message", "role": "assistant", "content": content, "model": self._model,
            "stop_reason": _REASONS[reason], "usage": _counts(usage),
        }  # fmt: skip

    def _block(self, text: str) -> dict[str, Any]:
        if self._kind == "text":
            return {"type": "text", "text": text}
        if self._kind == "think":
            return {"type": "thinking", "thinking": text, "signature": ""}
        arguments = orjson.loads(text) if text else {}
        return {"type": "tool_use", "id": f"toolu_{self._id[9:]}", "name": self._tool, "input": arguments}

    def _close(self) -> bytes:
        return b"" if self._kind is None else _event({"type": "content_block_stop", "index": self._index})


def _event(data: dict[str, Any]) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (data["type"].encode(), orjson.dumps(data))


def _counts(usage: Usage) -> dict[str, int]:
    # As Anthropic defines it, and vLLM since 0.3x: input_tokens is what neither was read from nor written to the cache.
    return {
        "input_tokens": usage.prompt - usage.cached,
        "output_tokens": usage.output,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached,
    }


async def handle(service: Service, request: web.Request) -> web.StreamResponse:
    return await service.generate(request, lambda body: make(service, body))


async def count(service: Service, request: web.Request) -> web.StreamResponse:
    def counted(body: dict[str, Any]) -> int:
        service.check_model(body)
        return len(service.prompts.chat(to_chat(body), body.get("tools")))

    tokens = await service.read(request, counted)
    return respond({"input_tokens": tokens, "context_management": {"original_input_tokens": tokens}})
