"""An exchange as a call of a model: which API, what was asked, what came back, and what could not be read."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec
import orjson

from loadgen.record.apis import api_of
from loadgen.record.apis.base import Api, Prompt, Reply
from loadgen.record.encoding import UndecodableError, decoder
from loadgen.record.exchange import Exchange
from loadgen.record.headers import first
from loadgen.record.sse import events

LONGEST_BODY = 32 << 20
"""Bytes of a request or answer that can become a turn: a trace's reader takes no line over 64 MiB."""

_SLICE = 1 << 16  # a compressed body is decoded in pieces, so that the limit on its size acts in time


class Call(msgspec.Struct, kw_only=True):
    """What was understood of one exchange. `prompt` null: no request to a model, or an unreadable one."""

    path: str
    api: Api | None = None
    body: dict[str, Any] = {}
    prompt: Prompt | None = None
    reply: Reply | None = None
    first_byte_ns: int | None = None
    problems: list[str] = []


def read(exchange: Exchange) -> Call:
    """Understand an exchange as far as possible; never raises for what client or upstream sent."""
    path = exchange.target.partition("?")[0]
    call = Call(path=path, api=api_of(exchange.method, path))
    call.first_byte_ns = exchange.marks[0][0] if exchange.marks else None
    if call.api is None and not path.endswith("/count_tokens"):
        return call
    if exchange.ending in ("refused", "upstream_unreachable"):
        return call  # its body may not even have been read
    if exchange.request_lost:
        size = len(exchange.request_body) + exchange.request_lost
        call.problems.append(f"a request of {size:,} bytes is not recorded")
        return call
    try:
        decode = decoder(first(exchange.request_headers, "content-encoding"))
        data = b"".join(decode(piece) for piece in _pieces(exchange.request_body))
        if len(data) > LONGEST_BODY:
            call.problems.append(f"a request of {len(data):,} bytes is not recorded")
            return call
        body = orjson.loads(data)
        if not isinstance(body, dict):
            raise TypeError("the body is no JSON object")
        call.body = body
        if call.api is not None:
            call.prompt = call.api.prompt(body)
    except (UndecodableError, ValueError, KeyError, TypeError, AttributeError) as error:
        call.problems.append(f"request not understood: {type(error).__name__}: {error}")
        return call
    if call.prompt is not None and exchange.status is not None:
        try:
            call.reply = _reply(exchange, call.api)
        except (UndecodableError, ValueError, KeyError, TypeError, AttributeError) as error:
            call.problems.append(f"answer not understood: {type(error).__name__}: {error}")
    return call


def _reply(exchange: Exchange, api: Api | None) -> Reply:
    assert api is not None
    if exchange.response_lost or len(exchange.response_body) > LONGEST_BODY:
        raise ValueError(f"{len(exchange.response_body) + exchange.response_lost:,} bytes are not recorded")
    decode = decoder(first(exchange.response_headers, "content-encoding"))
    if (first(exchange.response_headers, "content-type") or "").startswith("text/event-stream"):
        return api.stream(events((at_ns, decode(piece)) for at_ns, piece in _timed(exchange)))
    whole = b"".join(decode(piece) for piece in _pieces(exchange.response_body))
    if not whole:
        return Reply()
    body = orjson.loads(whole)
    if not isinstance(body, dict):
        raise TypeError("the answer is no JSON object")
    return api.whole(body)


def _timed(exchange: Exchange) -> Iterator[tuple[int, bytes]]:
    start = 0
    for at_ns, end in exchange.marks:
        yield at_ns, exchange.response_body[start:end]
        start = end


def _pieces(body: bytes) -> Iterator[bytes]:
    for start in range(0, len(body), _SLICE):
        yield body[start : start + _SLICE]
