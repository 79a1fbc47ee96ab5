"""Small answers of the four APIs in vLLM's shapes, and the bytes of a response around them."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any


def sse(*events: Any, done: bool = True, named: bool = False) -> bytes:
    """Events as body bytes; `named` puts the event's type in front, as responses and messages do."""
    lines = [
        (f"event: {event['type']}\n" if named else "") + f"data: {json.dumps(event, ensure_ascii=False)}\n\n"
        for event in events
    ]
    return "".join(lines).encode() + (b"data: [DONE]\n\n" if done else b"")


def chunked(body: bytes, cuts: list[int] | None = None) -> bytes:
    """A response whose body is cut into HTTP chunks at `cuts`."""
    edges = [0, *sorted({c for c in cuts or [] if 0 < c < len(body)}), len(body)]
    pieces = [body[a:b] for a, b in pairwise(edges)]
    return (
        b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
        + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)
        + b"0\r\n\r\n"
    )


def chat_events(tokens: list[dict[str, Any]], finish: str = "length", **usage: Any) -> list[dict[str, Any]]:
    """A chat stream: role chunk, one chunk a delta, finish, usage."""
    deltas = [{"role": "assistant", "content": ""}, *tokens]
    events: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas
    ]
    events.append({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]})
    counts = {"prompt_tokens": 12, "completion_tokens": len(tokens), **usage}
    return [*events, {"choices": [], "usage": counts}]
