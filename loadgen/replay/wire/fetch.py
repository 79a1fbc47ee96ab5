"""Small requests beside the load, such as a preflight or a scrape of /metrics; gevent-friendly, no stream."""

from __future__ import annotations

import ssl
from collections.abc import Sequence
from typing import Any

import orjson

from loadgen.errors import InputError
from loadgen.measure.sample import ErrorClass
from loadgen.replay.wire.connection import Connection
from loadgen.replay.wire.exchange import Request, Timeouts
from loadgen.replay.wire.target import Target


class FetchError(InputError):
    """A request beside the load failed. `status` is None when there was no answer."""

    def __init__(self, message: str, error: ErrorClass, status: int | None) -> None:
        super().__init__(message)
        self.error = error
        self.status = status


def fetch(
    target: Target,
    path: str,
    *,
    payload: Any = None,
    headers: Sequence[tuple[str, str]] = (),
    tls_context: ssl.SSLContext | None = None,
    proxy: Target | None = None,
    timeout_s: float = 10.0,
) -> tuple[bytes, dict[str, str]]:
    """Body and headers of a GET, or of a POST when there is a payload. Raises FetchError with a sentence for the user."""
    connection = Connection(
        target,
        headers=headers,
        tls_context=tls_context,
        proxy=proxy,
        connect_timeout_s=timeout_s,
        kernel_stamps=False,
    )
    try:
        request = Request(
            path,
            parts=() if payload is None else (orjson.dumps(payload),),
            method="GET" if payload is None else "POST",
        )
        exchange = connection.exchange(request, Timeouts(first_token_s=None, stall_s=None, total_s=timeout_s))
    finally:
        connection.close()
    if exchange.error is not None:
        what = f"{target.url}{path}"
        raise FetchError(
            f"{what} failed ({exchange.error}): {exchange.message}", exchange.error, exchange.status
        )
    return exchange.body, exchange.headers


def get_text(
    target: Target, path: str, *, headers: Sequence[tuple[str, str]] = (), timeout_s: float = 10.0
) -> str:
    """Text of a GET, such as /metrics."""
    return fetch(target, path, headers=headers, timeout_s=timeout_s)[0].decode("utf-8", "replace")


def get_json(
    target: Target, path: str, *, headers: Sequence[tuple[str, str]] = (), timeout_s: float = 10.0
) -> Any:
    """Decoded JSON of a GET."""
    return _decoded(target, path, fetch(target, path, headers=headers, timeout_s=timeout_s)[0])


def post_json(
    target: Target,
    path: str,
    payload: Any,
    *,
    headers: Sequence[tuple[str, str]] = (),
    timeout_s: float = 10.0,
) -> Any:
    """Decoded JSON of a POST of `payload`."""
    return _decoded(
        target, path, fetch(target, path, payload=payload, headers=headers, timeout_s=timeout_s)[0]
    )


def _decoded(target: Target, path: str, body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except orjson.JSONDecodeError as error:
        raise FetchError(
            f"{target.url}{path} did not answer with JSON: {error}", ErrorClass.MALFORMED, 200
        ) from None
