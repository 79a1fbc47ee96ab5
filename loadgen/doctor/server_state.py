"""What a server says of itself at this moment, and waiting until it is quiet. Used before runs and between probes."""

from __future__ import annotations

import time
from typing import Any

from loadgen.errors import LoadgenError
from loadgen.measure.probes.fingerprint import fingerprint
from loadgen.measure.probes.server import ServerCounters, parse
from loadgen.replay.endpoint import Api

_POLL_S = 0.2


def scrape(api: Api) -> ServerCounters | None:
    """The server's counters now; null where there is no page, or none that can be read."""
    try:
        status, _, page = api.request("GET", "/metrics")
        found = parse(page.decode("utf-8", "replace")) if status == 200 else None
    except (LoadgenError, ValueError):
        return None
    return found if found and found.series else None


def identify(api: Api, model: str | None) -> dict[str, Any]:
    """Fingerprint of the server at this moment; what it does not tell is absent."""
    page = scrape(api) or parse("")
    return fingerprint(page, _body(api, "/v1/models"), _body(api, "/version"), model)


def reset(api: Api) -> tuple[bool, str]:
    """Ask vLLM to empty its prefix cache. The answer is read and never trusted: only a nonce makes a run cold."""
    try:
        status, _, body = api.json("POST", "/reset_prefix_cache")
    except LoadgenError as error:
        return False, str(error)
    if status == 200 and isinstance(body, dict) and body.get("success") is True:
        return True, "the server says that it emptied its prefix cache"
    if status == 200:
        return False, f"answered 200 without success: {str(body)[:80]}"
    return False, f"HTTP {status}: there is no such route, or it is not enabled"


def pending_stores(page: ServerCounters) -> int | None:
    """Stores on their way to the tier; null where the connector does not count them on this page."""
    submitted, completed = page.counters.get("stores_submitted"), page.counters.get("stores_completed")
    return None if submitted is None or completed is None else int(submitted - completed)


def drain(api: Api, timeout_s: float, store: Api | None = None) -> tuple[bool, str]:
    """Wait until nothing is in flight and every store has ended, where the metrics tell.

    `store` is the page of a KV store that runs beside the server (LMCache's own server). The answer is false where
    the wait timed out, or where nobody tells whether stores have ended.
    """
    start = time.monotonic()
    while True:
        page = scrape(api)
        if page is None:
            return False, "no readable /metrics: nobody knows what is still in flight"
        beside = scrape(store) if store is not None else page
        pending = None if beside is None else pending_stores(beside)
        if page.in_flight is None:
            return False, "the metrics do not tell what is in flight"
        if page.in_flight == 0 and not pending:
            if pending is not None:
                return True, "nothing in flight, all stores ended"
            return False, "nothing in flight; the metrics do not tell whether stores have ended"
        if time.monotonic() - start > timeout_s:
            return (
                False,
                f"{page.in_flight} requests in flight, {pending or 0} stores pending after {timeout_s:g} s",
            )
        time.sleep(_POLL_S)


def _body(api: Api, path: str) -> Any:
    try:
        status, _, body = api.json("GET", path)
    except LoadgenError:
        return None
    return body if status == 200 else None
