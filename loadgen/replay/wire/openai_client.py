"""The same turns through the openai SDK: a cross-check that anybody can run, and the price of the SDK made visible.

An `OpenAIConnection` stands in for a `Connection`. Its clock is the loop's, it cannot see `[DONE]` or the last
HTTP chunk, and it decodes and encodes each request anew, as a program written against the SDK would.
"""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from time import monotonic_ns
from typing import Any

import gevent
import openai
import orjson

from loadgen.errors import InputError
from loadgen.measure.sample import ErrorClass
from loadgen.replay.wire import chat, completions, responses
from loadgen.replay.wire.api import BadEventError
from loadgen.replay.wire.exchange import Exchange, Request, Timeouts
from loadgen.replay.wire.failures import classify, retry_after_s
from loadgen.replay.wire.stream import StreamRecorder
from loadgen.replay.wire.target import Target

_SDK_FIELDS = {
    chat.PATH: {
        "model",
        "messages",
        "stream",
        "stream_options",
        "max_tokens",
        "temperature",
        "seed",
        "tools",
    },
    completions.PATH: {"model", "prompt", "stream", "stream_options", "max_tokens", "temperature", "seed"},
    responses.PATH: {
        "model",
        "input",
        "stream",
        "store",
        "max_output_tokens",
        "temperature",
        "instructions",
        "tools",
    },
}

_SDK_MODULES = ("openai", "httpx", "httpx2", "json")

_clients: dict[tuple[str, str, float], openai.OpenAI] = {}  # one a process: making one takes 50 ms


class _Cancelled(BaseException):
    """Thrown into the greenlet whose exchange is cut. No Exception: the SDK would wrap it."""


class OpenAIConnection:
    """What `Connection` is, through the SDK: `exchange`, `abort` and `close` have the same meaning."""

    def __init__(
        self,
        target: Target,
        *,
        headers: Sequence[tuple[str, str]] = (),
        tls_context: ssl.SSLContext | None = None,
        connect_timeout_s: float = 10.0,
    ) -> None:
        self.target = target
        self._headers = {name: value for name, value in headers if name.lower() != "authorization"}
        key = next((value for name, value in headers if name.lower() == "authorization"), "")
        identity = (target.url, key, connect_timeout_s)
        if identity not in _clients:
            _clients[identity] = openai.OpenAI(
                base_url=target.url + "/v1",
                api_key=key.removeprefix("Bearer ") or "none",
                max_retries=0,
                http_client=openai.DefaultHttpxClient(verify=tls_context or True, trust_env=False),
            )
        self._client = _clients[identity]
        self._connect_timeout_s = connect_timeout_s
        self._greenlet: Any = None
        self.interrupted: Exchange | None = None

    def exchange(self, request: Request, timeouts: Timeouts) -> Exchange:
        """Play one request; never raises for what a server does."""
        if request.events is None or request.path not in _SDK_FIELDS:
            raise InputError(f"the openai SDK has no {request.path}; use another API or our own client")
        exchange, events = Exchange(), request.events()
        recorder = StreamRecorder(exchange, events)
        limit = gevent.Timeout(timeouts.total_s) if timeouts.total_s is not None else gevent.Timeout()
        self._greenlet = gevent.getcurrent()
        exchange.send_ns = monotonic_ns()
        try:
            with limit:
                for number, event in enumerate(self._stream(request, timeouts, exchange), 1):
                    now = monotonic_ns()
                    recorder.event(event.to_dict(), now, now, number)
                recorder.judge(ended=True, expects_usage=request.expects_usage)
        except _Cancelled:
            exchange.fail(ErrorClass.CANCELLED, "cancelled by the client")
        except gevent.Timeout as expired:
            if expired is not limit:
                raise
            exchange.fail(_timeout(exchange), f"not complete within {timeouts.total_s:g} s")
        except BadEventError as error:
            exchange.fail(ErrorClass.MALFORMED, str(error))
        except (
            UnicodeDecodeError,
            AttributeError,
            TypeError,
            KeyError,
        ) as error:  # the SDK's own, on garbage
            exchange.fail(ErrorClass.MALFORMED, f"{type(error).__name__}: {error}")
        except Exception as error:
            if type(error).__module__.partition(".")[0] not in _SDK_MODULES:
                raise
            _explain(error, exchange)
        finally:
            self._greenlet = None
        exchange.end_ns = monotonic_ns()
        recorder.settle()
        return exchange

    def abort(self) -> None:
        """Cut the exchange that is under way, from another greenlet."""
        if self._greenlet is not None:
            gevent.kill(self._greenlet, _Cancelled())

    def close(self) -> None:
        """Connections belong to the process's client; an exchange under way ends as cancelled."""
        self.abort()

    def _stream(self, request: Request, timeouts: Timeouts, exchange: Exchange) -> Any:
        body: dict[str, Any] = orjson.loads(b"".join(request.parts))
        known = _SDK_FIELDS[request.path]
        arguments = {name: value for name, value in body.items() if name in known}
        reads = [limit for limit in (timeouts.first_token_s, timeouts.stall_s) if limit is not None]
        arguments |= {
            "extra_body": {name: value for name, value in body.items() if name not in known},
            "extra_headers": self._headers | dict(request.headers) | {"Accept-Encoding": "identity"},
            "timeout": openai.Timeout(
                None, connect=self._connect_timeout_s, read=max(reads) if reads else None
            ),
        }
        if request.path == chat.PATH:
            stream = self._client.chat.completions.create(**arguments)
        elif request.path == completions.PATH:
            stream = self._client.completions.create(**arguments)
        else:
            stream = self._client.responses.create(**arguments)
        exchange.status = stream.response.status_code
        exchange.headers = {name.lower(): value for name, value in stream.response.headers.items()}
        exchange.headers_ns = monotonic_ns()
        with stream:
            yield from stream


def _timeout(exchange: Exchange) -> ErrorClass:
    return ErrorClass.TIMEOUT_FIRST_TOKEN if exchange.first_token_ns is None else ErrorClass.TIMEOUT_STALL


def _explain(error: Exception, exchange: Exchange) -> None:
    """Error class of what the SDK raised."""
    cause = error.__cause__ if isinstance(error, openai.APIConnectionError) else error
    kind, words = type(cause).__name__, str(cause) or type(cause).__name__
    if isinstance(error, openai.APIStatusError):
        exchange.status = error.status_code
        if "retry-after" in error.response.headers:
            exchange.retry_after_s = retry_after_s(error.response.headers["retry-after"])
        exchange.fail(*classify(error.status_code, error.response.content))
    elif kind in ("ConnectError", "ConnectTimeout"):
        exchange.send_ns = 0
        exchange.fail(ErrorClass.CONNECT, words)
    elif kind.endswith("Timeout"):
        exchange.fail(_timeout(exchange), f"nothing to read for too long ({kind})")
    elif isinstance(error, openai.APIError) and not isinstance(error, openai.APIConnectionError):
        exchange.fail(ErrorClass.STREAM_ERROR, words)
    elif kind == "JSONDecodeError":
        exchange.fail(ErrorClass.MALFORMED, f"an event is not JSON: {words}")
    elif exchange.status is None or kind == "ReadError":
        exchange.fail(ErrorClass.RESET, words)
    else:
        exchange.fail(ErrorClass.TRUNCATED, words)
