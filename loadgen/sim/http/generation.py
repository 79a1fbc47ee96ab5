"""The life of one generation: from a rendered prompt to bytes on the wire at the engine's deadlines."""

from __future__ import annotations

import asyncio
import os
import socket
import struct
from typing import TYPE_CHECKING, Any, Protocol

import msgspec
import numpy as np
import orjson
from aiohttp import HttpVersion11, web

from loadgen.sim.http import errors
from loadgen.sim.http.faults import Fault
from loadgen.sim.request import Request
from loadgen.sim.streams import Tokens
from loadgen.sim.words import Piece

if TYPE_CHECKING:
    from loadgen.sim.http.service import Service

_SHORTEST, _SPREAD = 64, 193  # tokens of an answer that nobody forces: 64 to 256, by the prompt


class Job(msgspec.Struct, kw_only=True):
    """A request as the engine needs it, made by an API module from its own shape."""

    tokens: Tokens
    max_tokens: int
    min_tokens: int = 0
    ignore_eos: bool = False
    seed: int | None = None
    salt: str | None = None
    transfer: dict[str, Any] = {}
    think: bool = False
    tool: str | None = None  # name of the function to call


class Usage(msgspec.Struct, frozen=True):
    prompt: int
    output: int
    cached: int
    thought: int


class Format(Protocol):
    """How one API writes an answer."""

    def start(self, prompt: Tokens) -> bytes:
        """Events before the first token; sent together with it."""
        ...

    def token(self, piece: Piece, reason: str | None, usage: Usage) -> bytes:
        """Events of one token; `reason` ("stop", "length", "tool_calls") comes with the last."""
        ...

    def end(self, usage: Usage) -> bytes:
        """Events behind the last token, sent together with it."""
        ...

    def whole(self, prompt: Tokens, pieces: list[Piece], reason: str, usage: Usage) -> dict[str, Any]:
        """The answer of a request that does not stream."""
        ...


class Generation:
    """Owner of one engine request (`loadgen.sim.driver.Owner`)."""

    def __init__(
        self,
        service: Service,
        http: web.Request,
        job: Job,
        form: Format,
        stream: bool,
        arrived_s: float,
        fault: Fault | None,
    ) -> None:
        self._service = service
        self._http = http
        self._form = form
        self._stream = stream
        self._arrived_s = arrived_s
        self._fault = fault
        self._prompt = job.tokens
        seed = service.speaker.seed(job.tokens, job.seed)
        count = job.max_tokens
        if not job.ignore_eos:
            count = max(min(job.min_tokens, count), min(count, _SHORTEST + seed % _SPREAD))
        self._pieces = service.speaker.compose(seed, count, think=job.think, tool=job.tool is not None)
        self._reason = "length" if count == job.max_tokens else "stop"
        if job.tool is not None:
            self._reason = "tool_calls"
        self._sent = 0
        self._thought = 0
        self._next = b""  # bytes of the token that is due next
        self._period = -1
        self._chunked = True
        self._fd = -1
        self._held = bytearray()  # a burst's tokens
        self._muted = False
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        prompt = len(job.tokens)
        if not service.engine.fits(prompt + count):
            raise errors.too_long(service.engine.store.capacity * service.engine.block, prompt)
        own, outside = service.spaces(job)
        spoken = np.array([piece.id for piece in self._pieces], np.int32)
        self._request = Request(
            service.interner.intern(job.tokens),
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
        response = web.StreamResponse(
            headers={"content-type": "text/event-stream; charset=utf-8", "vary": "Origin"}
        )
        if self._stream:
            if self._http.version >= HttpVersion11:
                response.enable_chunked_encoding()
            await response.prepare(self._http)
            self._chunked = bool(response.chunked)
            if self._http.transport is not None:
                # our own copy: its number cannot become another connection's while this stream lives
                self._fd = os.dup(self._http.transport.get_extra_info("socket").fileno())
        if service.driver.now_s() > request.ready_s:
            service.metrics.late_requests.inc()
        service.driver.submit(request)
        try:
            await self._done
        except asyncio.CancelledError:
            service.engine.abort(request)
            raise
        finally:
            if self._fd >= 0:
                os.close(self._fd)
                self._fd = -1
        if not self._stream:
            return respond(
                self._form.whole(self._prompt, self._pieces, self._reason, self._usage(self._sent))
            )
        await response.write_eof()
        return response

    # -- called by the driver

    def admitted(self, request: Request) -> None:
        if request.preemptions:
            return
        self._service.metrics.admitted(request, self._service.tiered)
        self.prepare(request)

    def ready(self, request: Request) -> tuple[int, bytes] | None:
        transport = self._http.transport
        if self._fd < 0 or self._fault is not None or transport is None or transport.get_write_buffer_size():
            return None
        return self._fd, self._next

    def token(self, request: Request, written: int) -> None:
        self._sent += 1
        if self._stream:
            if self._fault is not None:
                self._spoil(self._fault, self._next)
            elif written >= 0:
                self._send(self._next[written:] if written else self._next)
            elif self._http.transport is not None:
                self._http.transport.abort()
        if self._sent == 1:
            self._service.metrics.first_token(request, self._arrived_s)

    def prepare(self, request: Request) -> None:
        at = self._sent
        if at == request.output:
            return
        piece = self._pieces[at]
        self._thought += piece.kind == "think"
        if not self._stream:
            return
        last = at + 1 == request.output
        usage = self._usage(at + 1)
        data = self._form.start(self._prompt) if at == 0 else b""
        data += self._form.token(piece, self._reason if last else None, usage)
        if last:
            data += self._form.end(usage)
        self._next = data if self._fault is not None else self._framed(data)

    def finished(self, request: Request) -> None:
        self._service.metrics.finished(request, self._arrived_s, self._reason)
        self._service.interner.drop(request.full)
        if not (self._muted or self._done.done()):
            self._done.set_result(None)

    def failed(self, request: Request) -> None:
        """The engine gave up on the request, before or in the middle of the stream."""
        self._muted = True
        self._service.metrics.success["error"].inc()
        if self._done.done():
            return
        if self._stream:
            self._write(errors.stream_error() + b"data: [DONE]\n\n")
            self._done.set_result(None)
        else:
            self._done.set_exception(errors.engine_failed())

    # -- inside

    def _usage(self, sent: int) -> Usage:
        off = self._fault is not None and self._fault.kind == "wrong_usage"
        return Usage(self._request.prompt + off, sent + off, self._request.cached + off, self._thought)

    def _framed(self, data: bytes) -> bytes:
        return b"%X\r\n%b\r\n" % (len(data), data) if self._chunked else data

    def _send(self, data: bytes) -> None:
        """Straight to the transport: aiohttp's own write costs a coroutine for every token."""
        transport = self._http.transport
        if data and transport is not None and not transport.is_closing():
            transport.write(data)

    def _write(self, data: bytes) -> None:
        self._send(self._framed(data))

    def _spoil(self, fault: Fault, data: bytes) -> None:
        """Send the token that is due as the fault has it."""
        if self._muted:
            self._held += data
            return
        if fault.kind == "burst":
            self._held += data
            period = int(self._service.engine.now_s / fault.seconds)
            if self._sent == self._request.output or period != self._period:
                self._period = period
                self._write(bytes(self._held))
                self._held.clear()
            return
        if self._sent != fault.after + 1:
            self._write(data)
        elif fault.kind == "stall":
            self._muted = True
            self._held += data
            loop = asyncio.get_running_loop()
            loop.call_later(fault.seconds / self._service.scale, self._resume)
        elif fault.kind == "malformed":
            self._write(b'data: {"id":"chatcmpl-0","choices":[{"index":0,"del\n\n')
            self._write(data)
        elif fault.kind == "error":
            self._service.engine.abort(self._request)
            self.failed(self._request)
        elif fault.kind == "truncated":
            transport = self._http.transport
            if transport is not None:
                transport.write(b"%X\r\n%b" % (len(data), data[: len(data) // 2]))
            self._drop(reset=False)
        elif fault.kind == "reset":
            self._drop(reset=True)
        else:
            self._write(data)

    def _resume(self) -> None:
        """End of a stall: everything that came meanwhile, at once."""
        self._muted = False
        self._write(bytes(self._held))
        self._held.clear()
        if self._request.state == "finished" and not self._done.done():
            self._done.set_result(None)

    def _drop(self, reset: bool) -> None:
        """Close the connection, politely or not."""
        transport = self._http.transport
        if transport is None:
            return
        if not reset:
            transport.close()
            return
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        transport.abort()


def respond(body: dict[str, Any], status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(body), status=status, content_type="application/json")
