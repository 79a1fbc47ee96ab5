"""`/v1/chat/completions`."""

from __future__ import annotations

import time
import uuid
from typing import Any

import orjson
from aiohttp import web

from loadgen.sim.http import errors, fields
from loadgen.sim.http.generation import Format, Job, Usage
from loadgen.sim.http.service import Service, check_sampling, job_options, whole_number
from loadgen.sim.streams import Tokens
from loadgen.sim.words import Piece

FINGERPRINT = "vllm-0.33.0-loadgensim"


def make(service: Service, body: dict[str, Any], ident: str | None) -> tuple[Job, Format, bool]:
    """Validate as vLLM does and render the prompt. Runs in a thread when the body is large."""
    if "messages" not in body:
        raise errors.missing("messages", len(body))
    messages = fields.messages(body["messages"])
    check_sampling(body)
    service.check_model(body)
    if not messages:
        raise errors.ApiError(
            400,
            "BadRequestError",
            "Cannot apply chat template to an empty conversation. Provide at least one message.",
        )
    tokens = service.prompts.chat(messages, body.get("tools"))
    name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    template = body.get("chat_template_kwargs")
    job = Job(
        tokens=tokens,
        max_tokens=service.room(len(tokens), whole_number(body, name, 1), name),
        think=bool(template and template.get("enable_thinking")),
        tool=_tool(body, messages, service.auto_tools),
        **job_options(body),
    )
    return job, ChatFormat(service.profile.model, body, ident, job.tool), bool(body.get("stream"))


def _tool(body: dict[str, Any], messages: list[dict[str, Any]], auto: bool) -> str | None:
    """Name of the function that the model calls, if it calls one."""
    tools = body.get("tools") or []
    choice = body.get("tool_choice") or ("auto" if tools else "none")
    if isinstance(choice, dict):
        return fields.name_of(choice, "function")
    if not tools or choice == "none" or (choice == "auto" and (not auto or messages[-1]["role"] == "tool")):
        return None
    return fields.name_of(tools[0], "function")


class ChatFormat:
    """Chunks and bodies of one chat completion."""

    def __init__(self, model: str, body: dict[str, Any], ident: str | None, tool: str | None) -> None:
        options = body.get("stream_options") or {}
        self._with_usage = bool(options.get("include_usage"))
        self._every_usage = self._with_usage and bool(options.get("continuous_usage_stats"))
        self._with_ids = bool(body.get("return_token_ids"))
        self._id = f"chatcmpl-{ident or uuid.uuid4().hex[:16]}"
        self._created = int(time.time())
        self._tool = tool
        self._call = f"chatcmpl-tool-{uuid.uuid4().hex[:16]}"
        self._called = False
        head = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": model,
        }
        self._model = model
        self._head = b"data: " + orjson.dumps(head)[:-1]

    def start(self, prompt: Tokens) -> bytes:
        ids = orjson.dumps(prompt.tolist()) if self._with_ids else b"null"
        return (
            self._head
            + b',"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
            + (self._running(Usage(len(prompt), 0, 0, 0)) if self._every_usage else b"")
            + b',"prompt_token_ids":%b,"prompt_text":null}\n\n' % ids
        )

    def token(self, piece: Piece, reason: str | None, usage: Usage) -> bytes:
        before = b""
        if piece.kind == "text":
            delta = b'{"content":%b}' % orjson.dumps(piece.text)
        elif piece.kind == "think":
            delta = b'{"reasoning":%b}' % orjson.dumps(piece.text)
        else:
            if not self._called:
                self._called = True
                call = {"id": self._call, "type": "function", "index": 0, "function": {"name": self._tool}}
                before = self._chunk(
                    orjson.dumps({"content": None, "tool_calls": [call]}), b"null", b"null", None, usage
                )
            delta = orjson.dumps(
                {"content": None, "tool_calls": [{"index": 0, "function": {"arguments": piece.text}}]}
            )
        finish = b"null" if reason is None else b'"%b","stop_reason":null' % reason.encode()
        ids = b"[%d]" % piece.id if self._with_ids else b"null"
        return before + self._chunk(delta, finish, ids, reason, usage)

    def _chunk(self, delta: bytes, finish: bytes, ids: bytes, reason: str | None, usage: Usage) -> bytes:
        return (
            b'%b,"choices":[{"index":0,"delta":%b,"logprobs":null,"finish_reason":%b,"token_ids":%b}]%b%b}\n\n'
            % (
                self._head,
                delta,
                finish,
                ids,
                self._running(usage) if self._every_usage else b"",
                b""
                if reason is None or self._with_usage
                else b',"system_fingerprint":"%b"' % FINGERPRINT.encode(),
            )
        )

    def end(self, usage: Usage) -> bytes:
        if not self._with_usage:
            return b"data: [DONE]\n\n"
        details = {"cached_tokens": usage.cached, "created_cache_tokens": 0}
        counted = orjson.dumps({**_counts(usage), "prompt_tokens_details": details})
        return b'%b,"choices":[],"usage":%b,"system_fingerprint":"%b"}\n\ndata: [DONE]\n\n' % (
            self._head,
            counted,
            FINGERPRINT.encode(),
        )

    def whole(self, prompt: Tokens, pieces: list[Piece], reason: str, usage: Usage) -> dict[str, Any]:
        arguments = spell(pieces, "tool")
        message: dict[str, Any] = {
            "role": "assistant", "content": spell(pieces, "text"), "refusal": None, "annotations": None,
            "audio": None, "function_call": None, "reasoning": spell(pieces, "think"),
        }  # fmt: skip
        if arguments is not None:
            function = {"name": self._tool, "arguments": arguments}
            message["tool_calls"] = [{"id": self._call, "type": "function", "function": function}]
        choice = {
            "index": 0, "message": message, "logprobs": None, "finish_reason": reason, "stop_reason": None,
            "token_ids": [piece.id for piece in pieces] if self._with_ids else None, "routed_experts": None,
        }  # fmt: skip
        details = {"cached_tokens": usage.cached, "created_cache_tokens": 0, "multimodal_tokens": None}
        return {
            "id": self._id, "object": "chat.completion", "created": self._created, "model": self._model,
            "choices": [choice], "service_tier": None, "system_fingerprint": FINGERPRINT,
            "usage": {**_counts(usage), "prompt_tokens_details": details, "completion_tokens_details": None},
            "prompt_logprobs": None, "prompt_token_ids": prompt.tolist() if self._with_ids else None,
            "prompt_text": None, "kv_transfer_params": None, "ec_transfer_params": None, "metrics": None,
        }  # fmt: skip

    def _running(self, usage: Usage) -> bytes:
        return b',"usage":' + orjson.dumps({**_counts(usage), "completion_tokens_details": None})


def _counts(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.output,
        "completion_tokens": usage.output,
    }


def spell(pieces: list[Piece], kind: str) -> str | None:
    """Text of all pieces of a kind; none when there is none."""
    texts = [piece.text for piece in pieces if piece.kind == kind]
    return "".join(texts) if texts else None


async def handle(service: Service, request: web.Request) -> web.StreamResponse:
    ident = request.headers.get("x-request-id")
    return await service.generate(request, lambda body: make(service, body, ident))
