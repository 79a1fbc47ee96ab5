"""The forwarding proxy: copies requests up and answers down, unbuffered, and notes when each piece passed.

On the path of a chunk there is one read, one append to a list and one write. The agent sees what it would
have seen without us: headers and queries unchanged, compressed bodies still compressed, a broken upstream as
a broken connection (never a 502 of ours), and its own disconnect reaches upstream.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import aiohttp
from aiohttp import web
from multidict import CIMultiDict
from yarl import URL

from loadgen.record.exchange import Ending, Exchange
from loadgen.record.headers import decode, end_to_end, one_spelling

READ_BUFFER = 1 << 20
HEADER_LIMIT = 1 << 18  # agents put JSON into headers; the default of 8 KB is too small
KEEP_BYTES = 256 << 20  # a longer body passes, and its rest is not recorded
CONNECT_TIMEOUT_S = 30
IDLE_TIMEOUT_S = 3600  # a queue of prefills may keep a stream silent for many minutes
_ADDED_BY_AIOHTTP = ("Date", "Server", "Content-Type")
_EXPECT = frozenset({"expect"})  # answered here, before the body is passed on
_HOST = frozenset({"host"})


class _Copy:
    """What passed in one direction."""

    def __init__(self) -> None:
        self.parts: list[bytes] = []
        self.size = 0
        self.lost = 0

    def add(self, data: bytes) -> None:
        if self.size + len(data) > KEEP_BYTES:
            self.lost += len(data)
            return
        self.size += len(data)
        self.parts.append(data)


class _Passage:
    """One exchange while it goes on."""

    def __init__(self, number: int, request: web.Request) -> None:
        self.received_ns = time.monotonic_ns()
        self.number = number
        self.request = request
        self.headers = decode(request.raw_headers)
        self.up = _Copy()
        self.down = _Copy()
        self.marks: list[tuple[int, int]] = []
        self.sent_ns: int | None = None
        self.headers_ns: int | None = None
        self.added_ns = 0
        self.max_hold_ns = 0
        self.answer: aiohttp.ClientResponse | None = None

    async def upload(self) -> AsyncIterator[bytes]:
        async for data in self.request.content.iter_any():
            self.up.add(data)
            yield data
        self.sent_ns = time.monotonic_ns()

    def exchange(self, ending: Ending, error: str | None = None) -> Exchange:
        answer = self.answer
        return Exchange(
            number=self.number,
            method=self.request.method,
            target=self.request.raw_path,
            version=f"{self.request.version.major}.{self.request.version.minor}",
            request_headers=self.headers,
            request_body=b"".join(self.up.parts),
            request_lost=self.up.lost,
            status=answer.status if answer is not None else None,
            response_headers=decode(answer.raw_headers) if answer is not None else [],
            response_body=b"".join(self.down.parts),
            response_lost=self.down.lost,
            marks=self.marks,
            received_ns=self.received_ns,
            sent_ns=self.sent_ns,
            headers_ns=self.headers_ns,
            end_ns=time.monotonic_ns(),
            added_ns=self.added_ns,
            max_hold_ns=self.max_hold_ns,
            ending=ending,
            error=error,
        )


class Forwarder:
    """Forwards everything to `upstream` (scheme, authority and a path prefix); hands each finished exchange to `emit`.

    Without `emit` it only forwards: the reference that the recorder's cost is measured against.
    """

    def __init__(self, upstream: URL, emit: Callable[[Exchange], None] | None) -> None:
        self._base = str(upstream.origin()) + upstream.raw_path.rstrip("/")
        self._emit = emit
        self._session: aiohttp.ClientSession | None = None
        self._count = 0
        self._stopping = False

    def application(self) -> web.Application:
        app = web.Application()
        app.router.add_route("*", "/{target:.*}", self._handle)
        app.on_response_prepare.append(_remove_additions)
        app.cleanup_ctx.append(self._client)
        app.on_shutdown.append(self._stop)
        return app

    async def _client(self, _app: web.Application) -> AsyncIterator[None]:
        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            cookie_jar=aiohttp.DummyCookieJar(),
            timeout=aiohttp.ClientTimeout(
                total=None, sock_connect=CONNECT_TIMEOUT_S, sock_read=IDLE_TIMEOUT_S
            ),
            auto_decompress=False,
            read_bufsize=READ_BUFFER,
            max_line_size=HEADER_LIMIT,
            max_field_size=HEADER_LIMIT,
            max_headers=512,
            skip_auto_headers=("User-Agent", "Accept", "Accept-Encoding", "Content-Type"),
        ) as self._session:
            yield

    async def _stop(self, _app: web.Application) -> None:
        self._stopping = True

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._count += 1
        passage = _Passage(self._count, request)
        if not request.raw_path.startswith("/"):
            return self._refuse(passage, 400, "the recorder is a base URL, not an HTTP proxy")
        if request.headers.get("Upgrade", "").lower() == "websocket":
            # 426 is what makes Codex and its kin fall back to a streamed POST
            return self._refuse(passage, 426, "the recorder forwards no WebSocket; use HTTP streaming")
        try:
            response = await self._forward(passage)
        except asyncio.CancelledError:
            self._record(passage, "cut" if self._stopping else "client_abort")
            raise
        except _ClientGoneError as error:
            self._record(passage, "client_abort", str(error))
            return _broken(request)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            reason = f"{type(error).__name__}: {error}".rstrip(": ")
            self._record(
                passage, "upstream_unreachable" if passage.answer is None else "upstream_abort", reason
            )
            return _broken(request)
        self._record(passage, "complete")
        return response

    async def _forward(self, passage: _Passage) -> web.StreamResponse:
        request = passage.request
        assert self._session is not None
        before_ns = time.monotonic_ns()
        async with self._session.request(
            request.method,
            URL(self._base + request.raw_path, encoded=True),
            headers=CIMultiDict(one_spelling(end_to_end(passage.headers, also=_HOST | _EXPECT))),
            data=passage.upload() if request.body_exists else None,
            allow_redirects=False,
        ) as answer:
            passage.headers_ns = time.monotonic_ns()
            passage.answer = answer
            passage.added_ns = before_ns - passage.received_ns
            response = _Answer(answer)
            await _to_client(response.prepare(request))
            await self._copy(passage, answer, response)
            return response

    async def _copy(
        self, passage: _Passage, answer: aiohttp.ClientResponse, response: web.StreamResponse
    ) -> None:
        content, down, marks = answer.content, passage.down, passage.marks
        while data := await content.readany():
            read_ns = time.monotonic_ns()
            down.add(data)
            await _to_client(response.write(data))
            hold_ns = time.monotonic_ns() - read_ns
            if not marks:
                passage.added_ns += hold_ns
            if hold_ns > passage.max_hold_ns:
                passage.max_hold_ns = hold_ns
            marks.append((read_ns, down.size))
        await _to_client(response.write_eof())

    def _refuse(self, passage: _Passage, status: int, reason: str) -> web.Response:
        self._record(passage, "refused", reason)
        return web.Response(status=status, text=reason + "\n")

    def _record(self, passage: _Passage, ending: Ending, error: str | None = None) -> None:
        if self._emit is not None:
            self._emit(passage.exchange(ending, error))


class _ClientGoneError(Exception):
    """The client went away while we wrote to it."""


async def _to_client(writing: Awaitable[object]) -> None:
    """Await a write to the client, so that its failures are told from upstream's."""
    try:
        await writing
    except (ConnectionError, aiohttp.ClientConnectionError) as error:
        raise _ClientGoneError(str(error)) from None


class _Answer(web.StreamResponse):
    """Upstream's status and headers, nothing added."""

    def __init__(self, answer: aiohttp.ClientResponse) -> None:
        super().__init__(
            status=answer.status,
            reason=answer.reason,
            headers=CIMultiDict(end_to_end(decode(answer.raw_headers))),
        )
        self.additions = [name for name in _ADDED_BY_AIOHTTP if name not in self.headers]


async def _remove_additions(_request: web.Request, response: web.StreamResponse) -> None:
    if isinstance(response, _Answer):
        for name in response.additions:
            response.headers.popall(name, None)


def _broken(request: web.Request) -> web.Response:
    """Cut the client's connection, as upstream cut ours. The response is a form's sake: it has nowhere to go."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response()
