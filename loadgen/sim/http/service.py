"""What all API modules share: the machine, its prompts and its words, and the checks that are the same for all."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import msgspec
import orjson
from aiohttp import web

from loadgen.sim.driver import Driver
from loadgen.sim.engine import Engine
from loadgen.sim.http import errors, fields
from loadgen.sim.http.faults import Rules
from loadgen.sim.http.generation import Format, Generation, Job, Usage, respond
from loadgen.sim.http.metrics import Metrics
from loadgen.sim.profile import Profile
from loadgen.sim.prompt import Prompts
from loadgen.sim.streams import Interner
from loadgen.sim.words import Speaker
from loadgen.tokens.base import Tokenizer

_SMALL_BODY = 32_768  # bytes up to which parsing and tokenizing on the event loop delays nobody
T = TypeVar("T")


class Service:
    """One simulated server. `auto_tools`: with tools and tool_choice "auto" it calls one unless a tool just answered."""

    def __init__(
        self,
        profile: Profile,
        arm: str,
        scale: float,
        tokenizer: Tokenizer,
        model: str | None = None,
        *,
        faults: Rules | None = None,
        auto_tools: bool = False,
    ) -> None:
        if model is not None:
            profile = msgspec.structs.replace(profile, model=model)
        self.profile = profile
        self.arm = arm
        self.scale = scale
        self.auto_tools = auto_tools
        self.interner = Interner()
        self.engine = Engine(profile, arm, self.interner.drop)
        self.metrics = Metrics(profile, arm, self.engine.store.capacity + 1)
        self.driver = Driver(self.engine, scale, self.metrics)
        self.prompts = Prompts(tokenizer)
        self.speaker = Speaker(tokenizer)
        self.tiered = bool(profile.arm(arm).tiers)
        self.salted_outside = profile.arm(arm).external_key == "salt"
        self._faults = faults or Rules()
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

    async def generate(
        self, http: web.Request, make: Callable[[dict[str, Any]], tuple[Job, Format, bool]]
    ) -> web.StreamResponse:
        """Read a request, `make` job, format and "streams?" of it, run it and send the answer."""
        arrived_s = self.driver.now_s()
        job, form, stream = await self.read(http, make)
        try:
            fault = self._faults.next(http.headers.get("x-loadgen-fault"))
        except ValueError as error:
            raise errors.bad_value(f"X-Loadgen-Fault: {error}.", "x-loadgen-fault") from None
        if fault is not None:
            if fault.kind in ("overloaded", "unavailable"):
                raise errors.refused(fault.kind == "overloaded", fault.seconds)
            if fault.kind == "slow_start":
                await asyncio.sleep(fault.seconds / self.scale)
            if fault.kind == "empty":
                return _nothing(job, form, stream)
        return await Generation(self, http, job, form, stream, arrived_s, fault).run()

    # -- checks that all APIs share

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

    def decode(self, ids: list[int]) -> str:
        """Text of ids from a client. Raises vLLM's error for one outside the vocabulary."""
        try:
            return self.prompts.decode(ids)
        except (KeyError, IndexError, OverflowError, ValueError):
            raise errors.ApiError(
                400, "BadRequestError", f"Token id {max(ids)} is out of vocabulary"
            ) from None

    def spaces(self, job: Job) -> tuple[str | None, object]:
        """Cache namespaces in HBM and behind the connector: a salt changes one, an LMCache tag the other."""
        if self.salted_outside:
            return job.salt, job.salt
        tags = tuple(sorted((k, str(v)) for k, v in job.transfer.items() if k.startswith("lmcache.tag.")))
        return job.salt, tags or None

    def scrape(self) -> bytes:
        """`/metrics`, with the gauges as they are now."""
        engine, metrics = self.engine, self.metrics
        metrics.running.set(engine.running)
        metrics.waiting.set(engine.waiting + engine.loading)
        metrics.capacity.set(engine.waiting)
        metrics.deferred.set(engine.loading)
        metrics.usage.set((engine.store.used - engine.store.idle) / engine.store.capacity)
        metrics.add_preemptions(engine.preemptions)
        metrics.external(engine.connector.tiers)
        return metrics.text()


def _nothing(job: Job, form: Format, stream: bool) -> web.Response:
    """An answer without a token."""
    usage = Usage(len(job.tokens), 0, 0, 0)
    if not stream:
        return respond(form.whole(job.tokens, [], "stop", usage))
    return web.Response(headers={"content-type": "text/event-stream; charset=utf-8"}, body=form.end(usage))


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
    try:
        json.loads(raw)
    except json.JSONDecodeError as error:
        return error.msg
    except ValueError:
        return None
    return None


def whole_number(body: dict[str, Any], name: str, least: int | None) -> int | None:
    """An optional integer of a body."""
    value = body.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise errors.wrong_type(name, "int_type", "a valid integer", value)
    if least is not None and value < least:
        raise errors.bad_value(f"{name} must be at least {least}, got {value}.", name, value)
    return value


def check_sampling(body: dict[str, Any]) -> None:
    """Parameters that vLLM refuses whatever the API."""
    fields.check(body)
    if body.get("stream_options") is not None and not body.get("stream"):
        raise errors.bad_value("Stream options can only be defined when `stream=True`.", "stream_options")
    temperature = body.get("temperature")
    if isinstance(temperature, int | float) and temperature < 0:
        raise errors.bad_value(
            f"temperature must be non-negative, got {float(temperature)}.", "temperature", float(temperature)
        )
    if (body.get("n") or 1) != 1:
        raise errors.bad_value("The simulated endpoint gives one answer a request.", "n", body["n"])
    salt = body.get("cache_salt")
    if salt == "":
        raise errors.bad_value("Parameter 'cache_salt' must be a non-empty string if provided.", "cache_salt")


def job_options(body: dict[str, Any]) -> dict[str, Any]:
    """Fields of a `Job` that have the same name in every API of vLLM."""
    return {
        "min_tokens": whole_number(body, "min_tokens", 0) or 0,
        "ignore_eos": bool(body.get("ignore_eos")),
        "seed": whole_number(body, "seed", None),
        "salt": body.get("cache_salt"),
        "transfer": body.get("kv_transfer_params") or {},
    }
