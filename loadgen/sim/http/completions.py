"""`/v1/completions`: text or token ids in, text (and ids) out."""

from __future__ import annotations

import time
import uuid
from typing import Any

import numpy as np
import orjson
from aiohttp import web

from loadgen.sim.http import errors
from loadgen.sim.http.chat import FINGERPRINT
from loadgen.sim.http.generation import Format, Job, Usage
from loadgen.sim.http.service import Service, check_sampling, job_options, whole_number
from loadgen.sim.streams import Tokens
from loadgen.sim.words import Piece

_DEFAULT_TOKENS = 16  # vLLM's, as OpenAI's


def make(service: Service, body: dict[str, Any], ident: str | None) -> tuple[Job, Format, bool]:
    """Validate and encode the prompt. Runs in a thread when the body is large."""
    check_sampling(body)
    service.check_model(body)
    tokens = _prompt(service, body)
    wanted = whole_number(body, "max_tokens", 1)
    job = Job(
        tokens=tokens,
        max_tokens=service.room(len(tokens), _DEFAULT_TOKENS if wanted is None else wanted, "max_tokens"),
        **job_options(body),
    )
    return job, CompletionFormat(service.profile.model, body, ident), bool(body.get("stream"))


def _prompt(service: Service, body: dict[str, Any]) -> Tokens:
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str | list):
        prompt = prompt[0]
    if isinstance(prompt, str):
        tokens = service.prompts.text(prompt)
    elif isinstance(prompt, list) and prompt and all(type(number) is int for number in prompt):
        service.decode([max(prompt), min(prompt)])
        tokens = np.array(prompt, np.int32)
    else:
        raise errors.bad_value("Prompt must be one string or one list of token ids.", "prompt")
    if not len(tokens):
        raise errors.bad_value("The decoder prompt cannot be empty.", "prompt")
    return tokens


class CompletionFormat:
    def __init__(self, model: str, body: dict[str, Any], ident: str | None) -> None:
        options = body.get("stream_options") or {}
        self._with_usage = bool(options.get("include_usage"))
        self._every_usage = self._with_usage and bool(options.get("continuous_usage_stats"))
        self._with_ids = bool(body.get("return_token_ids"))
        self._prompt_ids = b"null"
        self._facts = {
            "id": f"cmpl-{ident or uuid.uuid4().hex[:16]}", "object": "text_completion",
            "created": int(time.time()), "model": model,
        }  # fmt: skip
        self._head = b"data: " + orjson.dumps(self._facts)[:-1]

    def start(self, prompt: Tokens) -> bytes:
        if self._with_ids:
            self._prompt_ids = orjson.dumps(prompt.tolist())
        return b""

    def token(self, piece: Piece, reason: str | None, usage: Usage) -> bytes:
        prompt_ids, self._prompt_ids = self._prompt_ids, b"null"
        running = b',"usage":' + orjson.dumps(_counts(usage)) if self._every_usage else b""
        return (
            b'%b,"choices":[{"index":0,"text":%b,"logprobs":null,"finish_reason":%b,"stop_reason":null,'
            b'"prompt_token_ids":%b,"token_ids":%b}]%b}\n\n'
        ) % (
            self._head,
            orjson.dumps(piece.text),
            orjson.dumps(reason),
            prompt_ids,
            b"[%d]" % piece.id if self._with_ids else b"null",
            running,
        )

    def end(self, usage: Usage) -> bytes:
        if not self._with_usage:
            return b"data: [DONE]\n\n"
        counted = orjson.dumps({**_counts(usage), "prompt_tokens_details": {"cached_tokens": usage.cached}})
        return b'%b,"choices":[],"usage":%b,"system_fingerprint":"%b"}\n\ndata: [DONE]\n\n' % (
            self._head,
            counted,
            FINGERPRINT.encode(),
        )

    def whole(self, prompt: Tokens, pieces: list[Piece], reason: str, usage: Usage) -> dict[str, Any]:
        choice = {
            "index": 0, "text": "".join(piece.text for piece in pieces), "logprobs": None, "finish_reason": reason,
            "stop_reason": None, "token_ids": [piece.id for piece in pieces] if self._with_ids else None,
            "prompt_logprobs": None, "prompt_token_ids": prompt.tolist() if self._with_ids else None,
        }  # fmt: skip
        details = {"cached_tokens": usage.cached}
        return {
            **self._facts, "choices": [choice], "service_tier": None, "system_fingerprint": FINGERPRINT,
            "usage": {**_counts(usage), "prompt_tokens_details": details}, "kv_transfer_params": None,
        }  # fmt: skip


def _counts(usage: Usage) -> dict[str, int]:
    return {
        "prompt_tokens": usage.prompt,
        "total_tokens": usage.prompt + usage.output,
        "completion_tokens": usage.output,
    }


async def handle(service: Service, request: web.Request) -> web.StreamResponse:
    ident = request.headers.get("x-request-id")
    return await service.generate(request, lambda body: make(service, body, ident))
