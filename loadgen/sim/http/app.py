"""Routes, the headers that mark everything as simulated, and the life of the server process."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable

import msgspec
from aiohttp import web

from loadgen import descriptors, lifeline
from loadgen.errors import InputError
from loadgen.sim.http import chat, completions, errors, messages, responses, tokenizing
from loadgen.sim.http.generation import respond
from loadgen.sim.http.service import Service

Handler = Callable[[Service, web.Request], Awaitable[web.StreamResponse]]
_READ_BUFFER = 1 << 20  # a prompt of 560 KB arrives in few reads
_LARGEST_BODY = 1 << 28


def make_app(service: Service) -> web.Application:
    """The aiohttp application; the engine runs while it does."""
    app = web.Application(client_max_size=_LARGEST_BODY, middlewares=[_errors])

    def route(method: str, path: str, handler: Handler) -> None:
        async def call(request: web.Request) -> web.StreamResponse:
            return await handler(service, request)

        app.router.add_route(method, path, call)

    async def mark(_: web.Request, response: web.StreamResponse) -> None:
        response.headers["X-Loadgen-Simulated"] = f"{service.profile.name}/{service.arm}"
        response.headers["X-Loadgen-Time-Scale"] = repr(service.scale)

    async def engine(_: web.Application) -> AsyncIterator[None]:
        driving = asyncio.create_task(service.driver.run())
        driving.add_done_callback(_stop_on_error)
        yield
        driving.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await driving
        service.close()

    route("POST", "/v1/chat/completions", chat.handle)
    route("POST", "/v1/completions", completions.handle)
    route("POST", "/v1/responses", responses.handle)
    route("POST", "/v1/messages", messages.handle)
    route("POST", "/v1/messages/count_tokens", messages.count)
    route("POST", "/reset_prefix_cache", _reset)
    route("GET", "/server_info", _server_info)
    route("POST", "/tokenize", tokenizing.tokenize)
    route("POST", "/detokenize", tokenizing.detokenize)
    route("GET", "/v1/models", _models)
    route("GET", "/health", _empty)
    route("GET", "/ping", _empty)
    route("GET", "/version", _version)
    route("GET", "/load", _load)
    route("GET", "/metrics", _metrics)
    app.on_response_prepare.append(mark)
    app.cleanup_ctx.append(engine)
    return app


def _stop_on_error(task: asyncio.Task[None]) -> None:
    """A broken engine must not look like a slow one: let the process end."""
    if not task.cancelled() and task.exception() is not None:
        task.get_loop().call_exception_handler({"message": "engine stopped", "exception": task.exception()})
        signal.raise_signal(signal.SIGABRT)


@web.middleware
async def _errors(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    try:
        return await handler(request)
    except errors.ApiError as error:
        anthropic = request.path.startswith("/v1/messages") and not isinstance(error, errors.ValidationError)
        response = respond(error.anthropic_body() if anthropic else error.body(), error.status)
        response.headers.update(error.headers)
        return response
    except web.HTTPRequestEntityTooLarge:
        return respond({"detail": f"body over {_LARGEST_BODY} bytes"}, 413)
    except web.HTTPException as error:
        return respond({"detail": error.reason}, error.status)
    except Exception as error:
        if os.environ.get("LOADGEN_DEBUG"):
            raise
        print(
            f"loadgen sim: internal error: {type(error).__name__}: {error} in {request.path}", file=sys.stderr
        )
        return respond(errors.engine_failed().body(), 500)


async def _models(service: Service, _: web.Request) -> web.StreamResponse:
    now = int(time.time())
    permission = {
        "id": f"modelperm-{uuid.uuid4().hex[:16]}", "object": "model_permission", "created": now,
        "allow_create_engine": False, "allow_sampling": True, "allow_logprobs": True, "allow_search_indices": False,
        "allow_view": True, "allow_fine_tuning": False, "organization": "*", "group": None, "is_blocking": False,
    }  # fmt: skip
    model = {
        "id": service.profile.model, "object": "model", "created": now, "owned_by": "vllm", "root": service.profile.model,
        "parent": None, "max_model_len": service.profile.max_model_len, "permission": [permission],
    }  # fmt: skip
    return respond({"object": "list", "data": [model]})


async def _empty(_service: Service, _: web.Request) -> web.StreamResponse:
    return web.Response()


async def _version(_service: Service, _: web.Request) -> web.StreamResponse:
    return respond({"version": "0.33.0"})


async def _load(service: Service, _: web.Request) -> web.StreamResponse:
    return respond({"server_load": service.engine.running + service.engine.waiting})


async def _reset(service: Service, request: web.Request) -> web.StreamResponse:
    """200 in any case, as vLLM: the body says whether anything happened. LMCacheConnectorV1 has no reset at all."""
    done = service.engine.store.clear()
    if request.query.get("reset_external") == "true" and service.salted_outside:
        for tier in service.engine.connector.tiers:
            done = tier.store.clear() and done
    return respond({"success": done})


async def _server_info(service: Service, _: web.Request) -> web.StreamResponse:
    return respond({"vllm_config": msgspec.to_builtins(service.profile), "loadgen_arm": service.arm})


async def _metrics(service: Service, _: web.Request) -> web.StreamResponse:
    return web.Response(
        body=service.scrape(), headers={"content-type": "text/plain; version=0.0.4; charset=utf-8"}
    )


async def serve(service: Service, host: str, port: int, ready: Callable[[str], None]) -> None:
    """Listen until SIGTERM or SIGINT, or until the end of a starter that tied this process to itself; `ready` gets the URL.

    Raises InputError when the port is taken.
    """
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    if lifeline.taken():
        lifeline.on_end(lambda: loop.call_soon_threadsafe(stop.set))
    runner = web.AppRunner(
        make_app(service), handler_cancellation=True, access_log=None, read_bufsize=_READ_BUFFER
    )
    await runner.setup()
    try:
        listener = socket.create_server((host, port), backlog=1024)
    except OSError as error:
        await runner.cleanup()
        raise InputError(
            f"cannot listen on {host}:{port}: {os.strerror(error.errno or 0)}; choose another --port (0 takes a free one)"
        ) from None
    try:
        await web.SockSite(runner, listener, shutdown_timeout=0.5).start()
        # A collection in the middle of a step would make its tokens late: what is here stays, and the rest is young.
        descriptors.widen(descriptors.SERVER)
        gc.collect()
        gc.freeze()
        gc.set_threshold(50_000, 20, 100)
        ready(f"http://{host}:{listener.getsockname()[1]}")
        await stop.wait()
    finally:
        await runner.cleanup()
