"""The forwarding process: `python -m loadgen.record.forwarder FD CONFIG`, started by the scribe.

It has an event loop to itself, so that decoding, redaction and tokenizing never hold up a chunk. It ends on
SIGTERM, or when the other end of the pipe FD is closed: a killed recorder leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import sys
import time

import msgspec
from aiohttp import web
from yarl import URL

from loadgen import descriptors
from loadgen.record.exchange import Exchange, Failed, Lost, Notice, Ready, frame
from loadgen.record.forward import HEADER_LIMIT, READ_BUFFER, Forwarder

BACKLOG_BYTES = 1 << 30  # what may wait for the scribe; beyond it exchanges pass unrecorded
GRACE_S = 2.0


class Config(msgspec.Struct, kw_only=True):
    upstream: str
    host: str = "127.0.0.1"
    port: int = 0
    record: bool = True


class _Pipe:
    """Hands notices to the scribe without ever waiting for it."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._lost = 0

    def send(self, notice: Notice) -> None:
        self._writer.write(frame(notice))

    def emit(self, exchange: Exchange) -> None:
        if self._writer.transport.get_write_buffer_size() > BACKLOG_BYTES:
            self._lost += 1
            return
        if self._lost:
            self.send(Lost(exchanges=self._lost))
            self._lost = 0
        self.send(exchange)

    async def close(self) -> None:
        if self._lost:
            self.send(Lost(exchanges=self._lost))
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


async def serve(descriptor: int, config: Config) -> None:
    """Forward until SIGTERM or until the scribe is gone."""
    reader, writer = await asyncio.open_connection(sock=socket.socket(fileno=descriptor))
    pipe = _Pipe(writer)
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    forwarder = Forwarder(URL(config.upstream, encoded=True), pipe.emit if config.record else None)
    silent = logging.Logger("loadgen.record")
    silent.addHandler(logging.NullHandler())
    runner = web.AppRunner(
        forwarder.application(),
        handle_signals=False,
        handler_cancellation=True,
        access_log=None,
        logger=silent,
        shutdown_timeout=GRACE_S,
        auto_decompress=False,
        read_bufsize=READ_BUFFER,
        max_line_size=HEADER_LIMIT,
        max_field_size=HEADER_LIMIT,
        max_headers=512,
    )
    await runner.setup()
    try:
        await web.TCPSite(runner, config.host, config.port).start()
    except OSError as error:
        pipe.send(Failed(reason=f"cannot listen on {config.host}:{config.port}: {error.strerror or error}"))
    else:
        host, port = runner.addresses[0][:2]
        shown = f"[{host}]" if ":" in host else host
        pipe.send(Ready(url=f"http://{shown}:{port}", mono_ns=time.monotonic_ns(), wall_ns=time.time_ns()))
        descriptors.widen(descriptors.SERVER)
        gc.freeze()  # what start-up made stays; collections then cost no chunk a pause for it
        gone = asyncio.ensure_future(reader.read())
        await asyncio.wait({gone, asyncio.ensure_future(stop.wait())}, return_when=asyncio.FIRST_COMPLETED)
        gone.cancel()
    await runner.cleanup()
    await pipe.close()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1]), msgspec.json.decode(sys.argv[2], type=Config)))
