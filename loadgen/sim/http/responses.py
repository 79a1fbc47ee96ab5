"""`/v1/responses`."""

from __future__ import annotations

import time
import uuid
from typing import Any

import orjson
from aiohttp import web

from loadgen.sim.http import errors, fields
from loadgen.sim.http.chat import spell
from loadgen.sim.http.generation import Format, Job, Usage
from loadgen.sim.http.service import Service, check_sampling, job_options, whole_number
from loadgen.sim.prompt import content_text
from loadgen.sim.streams import Tokens
from loadgen.sim.words import Piece


def to_chat(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Input items as chat messages."""
    fields.check(body)
    chat: list[dict[str, Any]] = []
    if body.get("instructions"):
        chat.append({"role": "system", "content": str(body["instructions"])})
    items = body.get("input")
    if isinstance(items, str):
        return [*chat, {"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise (
            errors.missing("input", len(body))
            if items is None
            else errors.wrong_type("input", "list_type", "a valid list", items)
        )
    for at, item in enumerate(items):
        if not isinstance(item, dict):
            raise errors.wrong_type(f"input.{at}", "dict_type", "a valid dictionary", item)
        kind = item.get("type", "message")
        if kind == "function_call":
            call = {"name": item.get("name"), "arguments": item.get("arguments")}
            chat.append({"role": "assistant", "content": "", "tool_calls": [call]})
        elif kind == "function_call_output":
            chat.append({"role": "tool", "content": content_text(item.get("output"))})
        elif kind == "reasoning":
            chat.append({"role": "assistant", "reasoning": content_text(item.get("content"))})
        else:
            chat.append({"role": item.get("role", "user"), "content": item.get("content")})
    return fields.messages(chat, "input")


def make(service: Service, body: dict[str, Any]) -> tuple[Job, Format, bool]:
    """Validate and render the prompt. Runs in a thread when the body is large."""
    if body.get("previous_response_id"):
        raise errors.bad_value("The simulated endpoint stores no responses.", "previous_response_id")
    chat = to_chat(body)
    check_sampling(body)
    service.check_model(body)
    tokens = service.prompts.chat(chat, body.get("tools"))
    reasoning = body.get("reasoning")
    job = Job(
        tokens=tokens,
        max_tokens=service.room(len(tokens), whole_number(body, "max_output_tokens", 1), "max_output_tokens"),
        think=isinstance(reasoning, dict) and reasoning.get("effort") not in (None, "none"),
        tool=_tool(body, chat, service.auto_tools),
        **job_options(body),
    )
    return job, ResponsesFormat(service.profile.model, body, job.tool), bool(body.get("stream"))


def _tool(body: dict[str, Any], chat: list[dict[str, Any]], auto: bool) -> str | None:
    tools = [
        tool for tool in body.get("tools") or [] if isinstance(tool, dict) and tool.get("type") == "function"
    ]
    choice = body.get("tool_choice") or "auto"
    if isinstance(choice, dict):
        return fields.name_of(choice)
    if not tools or choice == "none" or (choice == "auto" and (not auto or chat[-1]["role"] == "tool")):
        return None
    return fields.name_of(tools[0])


class ResponsesFormat:
    """Events are numbered; every kind of output is an item that is added, filled and done."""

    def __init__(self, model: str, body: dict[str, Any], tool: str | None) -> None:
        self._id = f"resp_{uuid.uuid4().hex[:16]}"
        self._model = model
        self._tool = tool
        self._created = int(time.time())
        self._limit = body.get("max_output_tokens")
        self._body = body
        self._number = 0
        self._items: list[dict[str, Any]] = []
        self._kind: str | None = None
        self._item_id = ""
        self._text = ""

    def start(self, prompt: Tokens) -> bytes:
        response = self._response("in_progress", None, None)
        created = self._event("response.created", response=response)
        return created + self._event("response.in_progress", response=response)

    def token(self, piece: Piece, reason: str | None, usage: Usage) -> bytes:
        events = b""
        if piece.kind != self._kind:
            events = self._close() + self._open(piece.kind)
        self._text += piece.text
        place = {"item_id": self._item_id, "output_index": len(self._items)}
        if piece.kind == "tool":
            events += self._event("response.function_call_arguments.delta", delta=piece.text, **place)
        elif piece.kind == "think":
            events += self._event("response.reasoning_text.delta", content_index=0, delta=piece.text, **place)
        else:
            events += self._event(
                "response.output_text.delta", content_index=0, delta=piece.text, logprobs=[], **place
            )
        if reason is not None:
            events += self._close() + self._event("response.completed", response=self._final(reason, usage))
        return events

    def end(self, usage: Usage) -> bytes:
        return b""

    def whole(self, prompt: Tokens, pieces: list[Piece], reason: str, usage: Usage) -> dict[str, Any]:
        for kind in dict.fromkeys(piece.kind for piece in pieces):
            self._open(kind)
            self._text = spell(pieces, kind) or ""
            self._close()
        return self._final(reason, usage)

    # -- items

    def _open(self, kind: str) -> bytes:
        self._kind = kind
        prefix = {"text": "msg", "think": "rs", "tool": "fc"}[kind]
        self._item_id = f"{prefix}_{uuid.uuid4().hex[:16]}"
        self._text = ""
        at = len(self._items)
        events = self._event(
            "response.output_item.added", item=self._item("in_progress", ""), output_index=at
        )
        if kind == "text":
            part: dict[str, Any] = {"annotations": [], "text": "", "type": "output_text", "logprobs": []}
            events += self._event(
                "response.content_part.added",
                content_index=0,
                item_id=self._item_id,
                output_index=at,
                part=part,
            )
        return events

    def _close(self) -> bytes:
        if self._kind is None:
            return b""
        at = len(self._items)
        place = {"item_id": self._item_id, "output_index": at}
        item = self._item("completed", self._text)
        if self._kind == "text":
            events = self._event(
                "response.output_text.done", content_index=0, logprobs=[], text=self._text, **place
            ) + self._event("response.content_part.done", content_index=0, part=item["content"][0], **place)
        elif self._kind == "think":
            events = self._event("response.reasoning_text.done", content_index=0, text=self._text, **place)
        else:
            events = self._event(
                "response.function_call_arguments.done", arguments=self._text, name=self._tool, **place
            )
        self._items.append(item)
        self._kind = None
        return events + self._event("response.output_item.done", item=item, output_index=at)

    def _item(self, status: str, text: str) -> dict[str, Any]:
        if self._kind == "tool":
            return {
                "id": self._item_id, "type": "function_call", "call_id": f"call_{self._item_id[3:]}",
                "name": self._tool, "arguments": text, "status": status,
            }  # fmt: skip
        if self._kind == "think":
            content = [{"type": "reasoning_text", "text": text}] if text else []
            return {
                "id": self._item_id,
                "type": "reasoning",
                "summary": [],
                "content": content,
                "status": status,
            }
        part: dict[str, Any] = {"annotations": [], "text": text, "type": "output_text", "logprobs": None}
        return {
            "id": self._item_id, "content": [part] if text else [], "role": "assistant", "status": status,
            "type": "message", "phase": None,
        }  # fmt: skip

    # -- the response

    def _final(self, reason: str, usage: Usage) -> dict[str, Any]:
        counted = {
            "input_tokens": usage.prompt,
            "input_tokens_details": {
                "cached_tokens": usage.cached, "cache_write_tokens": 0, "input_tokens_per_turn": [],
                "cached_tokens_per_turn": [],
            },
            "output_tokens": usage.output,
            "output_tokens_details": {
                "reasoning_tokens": usage.thought, "tool_output_tokens": 0, "output_tokens_per_turn": [],
                "tool_output_tokens_per_turn": [],
            },
            "total_tokens": usage.prompt + usage.output,
        }  # fmt: skip
        cut = reason == "length"
        return self._response(
            "incomplete" if cut else "completed", {"reason": "max_output_tokens"} if cut else None, counted
        )

    def _response(self, status: str, incomplete: Any, usage: Any) -> dict[str, Any]:
        body = self._body
        return {
            "id": self._id, "created_at": self._created, "incomplete_details": incomplete,
            "instructions": body.get("instructions"), "metadata": body.get("metadata"), "model": self._model,
            "object": "response", "output": list(self._items), "parallel_tool_calls": True,
            "temperature": body.get("temperature", 1.0), "tool_choice": body.get("tool_choice") or ("auto" if body.get("tools") else "none"),
            "tools": body.get("tools") or [], "top_p": 1.0, "background": False, "max_output_tokens": self._limit,
            "max_tool_calls": None, "previous_response_id": None, "prompt": None, "reasoning": None,
            "service_tier": "auto", "status": status, "text": None, "top_logprobs": None, "truncation": "disabled",
            "usage": usage, "user": None, "presence_penalty": 0.0, "frequency_penalty": 0.0,
            "kv_transfer_params": None, "ec_transfer_params": None, "input_messages": None, "output_messages": None,
        }  # fmt: skip

    def _event(self, kind: str, **data: Any) -> bytes:
        data["sequence_number"] = self._number
        data["type"] = kind
        self._number += 1
        return b"event: %b\ndata: %b\n\n" % (kind.encode(), orjson.dumps(data))


async def handle(service: Service, request: web.Request) -> web.StreamResponse:
    return await service.generate(request, lambda body: make(service, body))
