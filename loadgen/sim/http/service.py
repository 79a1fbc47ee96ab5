"""What all API modules share: the machine, its prompts and its words, and the life of one generation."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Protocol, TypeVar

import msgspec
import numpy as np
import orjson
from aiohttp import HttpVersion11, web

from loadgen.sim.driver import Driver
from loadgen.sim.engine import Engine, Request
from loadgen.sim.http import errors
from loadgen.sim.http.metrics import Metrics
from loadgen.sim.profile import Profile
from loadgen.sim.prompt import Prompts
from loadgen.sim.streams import Interner, Tokens
from loadgen.sim.words import Speaker
from loadgen.tokens.base import Tokenizer

_SMALL_BODY = 32_768  # bytes up to which parsing and tokenizing on the event loop delays nobody
T = TypeVar("T")


class Job(msgspec.Struct, kw_only=True):
    """A request as the engine needs it, made by an API module from its own shape."""

    tokens: Tokens
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int | None = None
    salt: str | None = None
    transfer: dict[str, Any] = {}


class Usage(msgspec.Struct):
    prompt: int
    output: int
    cached: int


class Format(Protocol):
    """How one API writes an answer."""

    def start(self, prompt: Tokens) -> bytes:
        """Events before the first token; sent together with it."""
        ...

    def token(self, text: str, number: int, reason: str | None, usage: Usage) -> bytes: ...
    def end(self, usage: Usage) -> bytes: ...
    def whole(
        self, prompt: Tokens, said: list[tuple[int, str]], reason: str, usage: Usage
    ) -> dict[str, Any]: ...


class Service:
    def __init__(
        self, profile: Profile, arm: str, scale: float, tokenizer: Tokenizer, model: str | None = None
    ) -> None:
        if model is not None:
            profile = msgspec.structs.replace(profile, model=model)
        self.profile = profile
        self.arm = arm
        self.scale = scale
        self.engine = Engine(profile, arm)
        self.metrics = Metrics(profile, arm, self.engine.store.capacity)
        self.driver = Driver(self.engine, scale, self.metrics)
        self.prompts = Prompts(tokenizer)
        self.speaker = Speaker(tokenizer)
        self.interner = Interner()
        self.tiered = bool(profile.arm(arm).tiers)
        self._salted = profile.arm(arm).external_key == "salt"
        self._workers = ThreadPoolExecutor(max(2, os.cpu_count() or 1), thread_name_prefix="loadgen-sim")

    def close(self) -> None:
        self._workers.shutdown(wait=False, cancel_futures=True)

    async def read(self, request: web.Request, make: Callable[[dict[str, Any]], T]) -> T:
        """Parse the body and `make` something of it, in a thread when it is large: other streams have deadlines."""
        raw = await request.read()
        if request.content_type != "application/json":
            raise errors.media_type()
        if len(raw) <= _SMALL_BODY:
            return make(parse(raw))
        return await asyncio.get_running_loop().run_in_executor(self._workers, lambda: make(parse(raw)))

    def check_model(self, body: dict[str, Any]) -> None:
        name = body.get("model")
        if name is not None and name != self.profile.model:
            raise errors.no_model(name, self.profile.model)

    def room(self, prompt: int, wanted: int | None, name: str) -> int:
        """Output tokens that a request may have; raises what vLLM answers when there is no room."""
        limit = self.profile.max_model_len
        if wanted is not None and wanted > limit:
            raise errors.too_many_output(name, wanted, limit)
        if prompt >= limit:
            raise errors.too_long(limit, prompt)
        if wanted is None:
            return limit - prompt
        if prompt + wanted > limit:
            raise errors.no_room(limit, prompt, wanted)
        return wanted

    async def answer(
        self, http: web.Request, job: Job, form: Format, stream: bool, arrived_s: float
    ) -> web.StreamResponse:
        """Run one generation and send it."""
        return await _Generation(self, http, job, form, stream, arrived_s).run()

    def decode(self, ids: list[int]) -> str:
        """Text of ids from a client. Raises vLLM's error for one outside the vocabulary."""
        try:
            return self.prompts.decode(ids)
        except (KeyError, IndexError, OverflowError, ValueError):
            raise errors.ApiError(
                400, "BadRequestError", f"Token id {max(ids)} is out of vocabulary"
            ) from None

    def scrape(self) -> bytes:
        """`/metrics`, with the gauges as they are now."""
        engine, metrics = self.engine, self.metrics
        metrics.running.set(engine.running)
        metrics.waiting.set(engine.waiting)
        metrics.capacity.set(engine.waiting)
        metrics.usage.set((engine.store.used - engine.store.idle) / engine.store.capacity)
        return metrics.text()

    def spaces(self, job: Job) -> tuple[str | None, object]:
        """Cache namespaces in HBM and behind the connector: a salt changes one, an LMCache tag the other."""
        if self._salted:
            return job.salt, job.salt
        tags = tuple(sorted((k, str(v)) for k, v in job.transfer.items() if k.startswith("lmcache.tag.")))
        return job.salt, tags or None


class _Generation:
    """Owner of one engine request: turns its tokens into bytes on the wire."""

    def __init__(
        self, service: Service, http: web.Request, job: Job, form: Format, stream: bool, arrived_s: float
    ) -> None:
        self._service = service
        self._http = http
        self._form = form
        self._stream = stream
        self._arrived_s = arrived_s
        self._prompt = job.tokens
        seed = service.speaker.seed(job.tokens, job.seed)
        count = job.max_tokens
        if not job.ignore_eos:
            count = max(job.min_tokens, min(count, 64 + seed % 193))
        self._reason = "length" if count == job.max_tokens else "stop"
        self._said = service.speaker.say(seed, count)
        self._sent = 0
        self._last_s = 0.0
        self._done = asyncio.get_running_loop().create_future()
        prompt = len(job.tokens)
        if not service.engine.fits(prompt + count):
            raise errors.too_long(service.engine.store.capacity * service.engine.block, prompt)
        own, outside = service.spaces(job)
        stream_of = service.interner.intern(job.tokens)
        spoken = np.array([number for number, _ in self._said], np.int32)
        self._request = Request(
            stream_of,
            prompt,
            count,
            full=service.interner.intern(np.concatenate((job.tokens, spoken))),
            ready_s=arrived_s + service.engine.cost.host(prompt),
            hbm_space=own,
            external_space=outside,
            save=not job.transfer.get("lmcache.skip_save"),
            owner=self,
        )

    async def run(self) -> web.StreamResponse:
        service, request = self._service, self._request
        response: web.StreamResponse = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8", "vary": "Origin"}
        )
        if self._stream:
            if self._http.version >= HttpVersion11:
                response.enable_chunked_encoding()
            await response.prepare(self._http)
            self._chunked = bool(response.chunked)
        if service.driver.now_s() > request.ready_s:
            service.metrics.late_requests.inc()
        service.driver.submit(request)
        try:
            await self._done
        except asyncio.CancelledError:
            service.engine.abort(request)
            raise
        if self._stream:
            await response.write_eof()
            return response
        return respond(self._form.whole(self._prompt, self._said, self._reason, self._usage()))

    # -- called by the driver

    def admitted(self, request: Request) -> None:
        if not request.preemptions:
            self._service.metrics.admitted(request, self._service.tiered)

    def token(self, request: Request, due_s: float) -> None:
        at = self._sent
        self._sent += 1
        if at == 0:
            self._service.metrics.first_token(request, self._arrived_s)
        else:
            self._service.metrics.gap.observe(due_s - self._last_s)
        self._last_s = due_s
        if not self._stream:
            return
        number, text = self._said[at]
        last = self._sent == request.output
        form = self._form
        data = form.token(text, number, self._reason if last else None, self._usage())
        if at == 0:
            data = form.start(self._prompt) + data
        if last:
            data += form.end(self._usage())
        self._write(data)

    def finished(self, request: Request) -> None:
        self._service.metrics.finished(request, self._arrived_s, self._reason)
        if not self._done.done():
            self._done.set_result(None)

    def _usage(self) -> Usage:
        return Usage(self._request.prompt, self._sent, self._request.cached)

    def _write(self, data: bytes) -> None:
        """Straight to the transport: aiohttp's own write costs a coroutine for every token."""
        transport = self._http.transport
        if transport is not None and not transport.is_closing():
            transport.write(b"%X\r\n%b\r\n" % (len(data), data) if self._chunked else data)


def parse(raw: bytes) -> dict[str, Any]:
    """A JSON object, or vLLM's complaint."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise errors.not_json(error.pos, _stdlib_words(raw) or error.msg) from None
    if not isinstance(body, dict):
        raise errors.wrong_type("", "dict_type", "a valid dictionary", body)
    return body


def _stdlib_words(raw: bytes) -> str | None:
    """The problem in the words of Python's own parser, as vLLM reports it."""
    import json

    try:
        json.loads(raw)
    except json.JSONDecodeError as error:
        return error.msg
    except ValueError:
        return None
    return None


def respond(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
