"""`/v1/chat/completions`."""

from __future__ import annotations

import time
import uuid
from typing import Any

import orjson
from aiohttp import web

from loadgen.sim.http import errors
from loadgen.sim.http.service import Job, Service, Usage
from loadgen.sim.streams import Tokens

FINGERPRINT = "vllm-0.33.0-loadgensim"


def make_job(service: Service, body: dict[str, Any]) -> Job:
    """Validate as vLLM does and render the prompt. Runs in a thread when the body is large."""
    messages = body.get("messages")
    if "messages" not in body:
        raise errors.missing("messages", len(body))
    if not isinstance(messages, list):
        raise errors.wrong_type("messages", "list_type", "a valid list", messages)
    if body.get("stream_options") is not None and not body.get("stream"):
        raise errors.bad_value("Stream options can only be defined when `stream=True`.", "stream_options")
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and temperature < 0:
        raise errors.bad_value(
            f"temperature must be non-negative, got {float(temperature)}.", "temperature", float(temperature)
        )
    service.check_model(body)
    if not messages:
        raise errors.ApiError(
            400,
            "BadRequestError",
            "Cannot apply chat template to an empty conversation. Provide at least one message.",
        )
    for at, message in enumerate(messages):
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise errors.wrong_type(f"messages.{at}", "dict_type", "a valid dictionary with a role", message)
    tokens = service.prompts.chat(messages, body.get("tools"))
    name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    return Job(
        tokens=tokens,
        max_tokens=service.room(len(tokens), whole_number(body, name, 1), name),
        min_tokens=whole_number(body, "min_tokens", 0) or 0,
        ignore_eos=bool(body.get("ignore_eos")),
        seed=whole_number(body, "seed", None),
        salt=body.get("cache_salt"),
        transfer=body.get("kv_transfer_params") or {},
    )


def whole_number(body: dict[str, Any], name: str, least: int | None) -> int | None:
    """An optional integer of the body."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise errors.wrong_type(name, "int_type", "a valid integer", value)
    if least is not None and value < least:
        raise errors.bad_value(f"{name} must be at least {least}, got {value}.", name, value)
    return value


class ChatFormat:
    """Chunks and bodies of one chat completion."""

    def __init__(self, service: Service, body: dict[str, Any], ident: str | None) -> None:
        options = body.get("stream_options") or {}
        self._with_usage = bool(options.get("include_usage"))
        self._every_usage = self._with_usage and bool(options.get("continuous_usage_stats"))
        self._with_ids = bool(body.get("return_token_ids"))
        self._id = f"chatcmpl-{ident or uuid.uuid4().hex[:16]}"
        self._created = int(time.time())
        self._model = service.profile.model
        head = {
            "id": self._id,
            "object": "chat.completion.chunk",
            "created": self._created,
            "model": self._model,
        }
        self._head = b"data: " + orjson.dumps(head)[:-1]

    def start(self, prompt: Tokens) -> bytes:
        ids = orjson.dumps(prompt.tolist()) if self._with_ids else b"null"
        return (
            self._head
            + b',"choices":[{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
            + (self._running(Usage(len(prompt), 0, 0)) if self._every_usage else b"")
            + b',"prompt_token_ids":%b,"prompt_text":null}\n\n' % ids
        )

    def token(self, text: str, number: int, reason: str | None, usage: Usage) -> bytes:
        finish = b"null" if reason is None else b'"%b","stop_reason":null' % reason.encode()
        ids = b"[%d]" % number if self._with_ids else b"null"
        return (
            b'%b,"choices":[{"index":0,"delta":{"content":%b},"logprobs":null,"finish_reason":%b,"token_ids":%b}]%b%b}\n\n'
            % (
                self._head,
                orjson.dumps(text),
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

    def whole(self, prompt: Tokens, said: list[tuple[int, str]], reason: str, usage: Usage) -> dict[str, Any]:
        message = {
            "role": "assistant", "content": "".join(text for _, text in said), "refusal": None, "annotations": None,
            "audio": None, "function_call": None, "reasoning": None,
        }  # fmt: skip
        choice = {
            "index": 0, "message": message, "logprobs": None, "finish_reason": reason, "stop_reason": None,
            "token_ids": [number for number, _ in said] if self._with_ids else None, "routed_experts": None,
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


async def handle(service: Service, request: web.Request) -> web.StreamResponse:
    arrived_s = service.driver.now_s()
    body, job = await service.read(request, lambda body: (body, make_job(service, body)))
    form = ChatFormat(service, body, request.headers.get("x-request-id"))
    return await service.answer(request, job, form, bool(body.get("stream")), arrived_s)
