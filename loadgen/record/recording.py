"""One recording from start to end: the outputs, the forwarding process, and the loop between them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import msgspec
from yarl import URL

from loadgen import __version__, tokens
from loadgen.errors import InputError, InvalidRunError
from loadgen.record.blocks import BLOCK_TOKENS
from loadgen.record.exchange import Exchange, Lost, Ready
from loadgen.record.finish import finish
from loadgen.record.forwarder import Config
from loadgen.record.journal import Journal, journal_path
from loadgen.record.proxy import Proxy
from loadgen.record.redact import Redactor
from loadgen.record.scribe import Limits, Scribe
from loadgen.trace.model import VERSION, Header, Source
from loadgen.trace.writer import TraceWriter

_TICK_S = 0.25
_PACKED = (".gz", ".zst")


class Options(msgspec.Struct, kw_only=True):
    """What a recording does. `out` may end in `.gz` or `.zst`: it is packed when the recording ends."""

    upstream: str
    out: Path
    bind: str = "127.0.0.1"
    port: int = 0
    tokenizer: str = "tekken"
    hash_only: bool = False
    personal: bool = False
    max_bytes: int | None = None


def upstream_url(text: str) -> str:
    """The upstream's address without a last `/v1`, since agents add it. Raises InputError for what is no such address."""
    try:
        url = URL(text if "://" in text else f"http://{text}")
    except ValueError as error:
        raise InputError(f"--upstream {text!r}: {error}") from None
    if url.scheme not in ("http", "https") or not url.host:
        raise InputError(f"--upstream {text!r} must be an http:// or https:// address")
    if url.user or url.password:
        raise InputError("--upstream must not hold a user or password; the agent sends its own key")
    if url.query_string or url.fragment:
        raise InputError(f"--upstream {text!r} must not have a query or fragment")
    path = url.raw_path.rstrip("/").removesuffix("/v1").rstrip("/")
    return str(url.origin()) + path


class Recording:
    """Runs until `stop` is called or the forwarding process ends.

    `ready(url)` is called once the proxy listens, `tick(scribe)` four times a second or after each exchange, `say`
    for what a person must know at once.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        packed = options.out.suffix in _PACKED
        self.live = options.out.with_suffix("") if packed else options.out
        self.journal = journal_path(self.live)
        self._stopping = False
        for path in {options.out, self.live, self.journal}:
            if path.exists():
                raise InputError(f"{path} exists; a recording never overwrites, choose another name")
        if not 0 <= options.port <= 65535:
            raise InputError(f"--port {options.port} is no port; 0 takes a free one")
        if not options.out.parent.is_dir():
            raise InputError(f"{options.out.parent} is no folder")

    def stop(self) -> None:
        """Ask for the end; safe in a signal handler."""
        self._stopping = True

    def run(
        self,
        *,
        ready: Callable[[str], None],
        tick: Callable[[Scribe], None],
        say: Callable[[str], None],
    ) -> Scribe:
        """Record. Returns the scribe, whose figures and `stopped` tell how it went."""
        options = self._options
        config = Config(upstream=upstream_url(options.upstream), host=options.bind, port=options.port)
        tokenizer = tokens.get(options.tokenizer)
        with ExitStack() as stack:
            proxy = stack.enter_context(Proxy(config))
            writer = stack.enter_context(TraceWriter(self.live, self._header(), live=True))
            try:
                journal = stack.enter_context(Journal(self.journal))
            except OSError as error:
                raise InputError(f"{self.journal} cannot be written: {error.strerror or error}") from None
            scribe = Scribe(
                writer=writer,
                journal=journal,
                tokenizer=tokenizer,
                redactor=Redactor(tokenizer.count, personal=options.personal),
                ready=proxy.ready,
                limits=Limits(max_bytes=options.max_bytes, hash_only=options.hash_only),
                say=say,
            )
            ready(proxy.ready.url)
            self._loop(proxy, scribe, tick)
            scribe.end()
            died = not self._stopping
        self._finish(scribe, say)
        if died:
            raise InvalidRunError(f"the forwarding process ended by itself; {options.out} holds what it saw")
        return scribe

    def _loop(self, proxy: Proxy, scribe: Scribe, tick: Callable[[Scribe], None]) -> None:
        asked = False
        while not proxy.ended:
            match proxy.next(_TICK_S):
                case Exchange() as exchange:
                    scribe.take(exchange)
                case Lost(exchanges=count):
                    scribe.lost(count)
                case Ready() | None | _:
                    pass
            tick(scribe)
            if self._stopping and not asked:
                proxy.stop()
                asked = True

    def _finish(self, scribe: Scribe, say: Callable[[str], None]) -> None:
        try:
            finish(self.live, self._options.out)
        except InputError as error:
            if scribe.stopped is None:
                raise
            say(f"{self.live} is complete up to that point, its sessions are not sorted ({error})")

    def _header(self) -> Header:
        hash_only = self._options.hash_only
        return Header(
            version=VERSION,
            name=self.live.stem,
            source=Source(format="recording", tool=f"loadgen record {__version__}"),
            fidelity="blocks" if hash_only else "bodies",
            tokenizer=self._options.tokenizer if hash_only else None,
            block_size=BLOCK_TOKENS if hash_only else None,
        )
