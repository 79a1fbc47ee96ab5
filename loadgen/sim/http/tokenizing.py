"""`/tokenize` and `/detokenize`."""

from __future__ import annotations

from typing import Any

from aiohttp import web

from loadgen.sim.http import errors, fields
from loadgen.sim.http.generation import respond
from loadgen.sim.http.service import Service


def _tokenize(service: Service, body: dict[str, Any]) -> dict[str, Any]:
    service.check_model(body)
    if "messages" in body:
        fields.check(body)
        messages = fields.messages(body["messages"])
        ids = service.prompts.chat(
            messages, body.get("tools"), open_answer=body.get("add_generation_prompt", True)
        )
    elif isinstance(body.get("prompt"), str):
        ids = service.prompts.text(body["prompt"])
    else:
        raise errors.missing("prompt", len(body))
    numbers = ids.tolist()
    strings = (
        [service.prompts.decode([number]) for number in numbers] if body.get("return_token_strs") else None
    )
    return {
        "count": len(numbers),
        "max_model_len": service.profile.max_model_len,
        "tokens": numbers,
        "token_strs": strings,
    }


async def tokenize(service: Service, request: web.Request) -> web.StreamResponse:
    return respond(await service.read(request, lambda body: _tokenize(service, body)))


def _detokenize(service: Service, body: dict[str, Any]) -> dict[str, Any]:
    service.check_model(body)
    ids = body.get("tokens")
    if ids is None:
        raise errors.missing("tokens", len(body))
    if not isinstance(ids, list) or not all(isinstance(number, int) for number in ids):
        raise errors.wrong_type("tokens", "list_type", "a valid list", ids)
    return {"prompt": service.decode(ids)}


async def detokenize(service: Service, request: web.Request) -> web.StreamResponse:
    return respond(await service.read(request, lambda body: _detokenize(service, body)))
