"""A small endpoint that does what it is told to do wrong.

It speaks just enough of vLLM's HTTP for the doctor: a toy tokenizer (one id a word or newline), a cache of whole
prompts per salt, and a tier behind it keyed as the connector under test would key it.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import re
import threading
import time
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Behaviour:
    """What the endpoint is like; the defaults are a healthy vLLM without a tier."""

    usage: bool = True
    cached_tokens: str = "always"  # always, when-above-zero (vLLM 0.20), never
    prefix_cache: bool = True
    buffered: bool = False  # the whole answer at once
    cut: bool = False  # the stream ends in the middle
    free_length: bool = False  # forced output lengths are ignored
    refuse: str | None = None  # a field that is answered with HTTP 400
    metrics: bool = True
    in_flight: int = 0
    replicas: int = 1
    tokenize: bool = True
    moves_tools: bool = False  # tools stand before the last user message
    max_model_len: int = 200_000
    reset: bool = False
    tier: str | None = None  # "tag": keys are tags and salts are not seen; "salt": keys hold the salt
    honours_skip_save: bool = True
    ignores_salt: bool = False
    models: Any = None


@dataclass
class State:
    hbm: set[tuple[str | None, str]] = field(default_factory=set)
    tier: set[tuple[Any, str]] = field(default_factory=set)
    counters: dict[str, float] = field(default_factory=dict)
    replica: Any = field(default_factory=lambda: itertools.count())
    lock: Any = field(default_factory=threading.Lock)

    def add(self, **amounts: float) -> None:
        for name, amount in amounts.items():
            self.counters[name] = self.counters.get(name, 0) + amount


def ids(text: str) -> list[int]:
    return [zlib.crc32(word.encode()) for word in re.findall(r"\n|[^\s]+", text)]


def render(body: dict[str, Any], behaviour: Behaviour) -> list[int]:
    messages = list(body["messages"])
    tools = [["<tools>", json.dumps(tool)] for tool in body.get("tools") or []]
    parts: list[str] = []
    for place, message in enumerate(messages):
        last_user = place == max((n for n, m in enumerate(messages) if m["role"] == "user"), default=0)
        if tools and (last_user if behaviour.moves_tools else place == 0):
            parts += itertools.chain(*tools)
        parts += [f"<{message['role']}>", message["content"].strip(), "</s>"]
    return ids(" ".join([*parts, "<assistant>"]))


def page(state: State, behaviour: Behaviour) -> str:
    c = state.counters
    source = "vllm:prompt_tokens_by_source_total"
    started = 1000 + next(state.replica) % behaviour.replicas
    lines = {
        "process_start_time_seconds": started,
        "vllm:num_requests_running": behaviour.in_flight,
        "vllm:num_requests_waiting": 0,
        "vllm:prompt_tokens_total": c.get("prompt", 0),
        f'{source}{{source="local_compute"}}': c.get("compute", 0),
        f'{source}{{source="local_cache_hit"}}': c.get("hbm", 0),
        f'{source}{{source="external_kv_transfer"}}': c.get("external", 0),
        "vllm:request_queue_time_seconds_sum": 0,
        "vllm:request_prefill_time_seconds_sum": c.get("prefill", 0),
        "vllm:time_to_first_token_seconds_sum": c.get("prefill", 0),
        "vllm:time_to_first_token_seconds_count": c.get("n", 0),
        'vllm:cache_config_info{block_size="16",num_gpu_blocks="20000"}': 1,
    }
    return "".join(f"{name} {value}\n" for name, value in lines.items())


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    behaviour: Behaviour
    state: State

    def log_message(self, *_: Any) -> None: ...

    def _json(self, value: Any, status: int = 200) -> None:
        self._text(json.dumps(value), status, "application/json")

    def _text(self, text: str, status: int = 200, kind: str = "text/plain") -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        b = self.behaviour
        if self.path == "/v1/models":
            entry = {"id": "toy", "object": "model", "root": "toy", "max_model_len": b.max_model_len}
            self._json(b.models if b.models is not None else {"object": "list", "data": [entry]})
        elif self.path == "/version":
            self._json({"version": "0.0-toy"})
        elif self.path == "/metrics" and b.metrics:
            self._text(page(self.state, b))
        else:
            self._json(
                {"detail": "Not Found"}, 405 if b.reset and self.path == "/reset_prefix_cache" else 404
            )

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
        if self.path == "/tokenize" and self.behaviour.tokenize:
            tokens = ids(body["prompt"]) if "prompt" in body else render(body, self.behaviour)
            self._json({"count": len(tokens), "tokens": tokens})
        elif self.path == "/reset_prefix_cache" and self.behaviour.reset:
            self.state.hbm.clear()
            self._json({"success": True})
        elif self.path == "/v1/chat/completions":
            self._chat(body)
        else:
            self._json({"detail": "Not Found"}, 404)

    def _chat(self, body: dict[str, Any]) -> None:
        b = self.behaviour
        if b.refuse is not None and b.refuse in body:
            self._json({"error": {"message": f"unknown field {b.refuse}", "type": "BadRequestError"}}, 400)
            return
        prompt = len(render(body, b))
        with self.state.lock:
            hbm, external = self._look_up(body, prompt)
        compute = prompt - hbm - external
        time.sleep(0.02 if hbm else 0.03 if external else 0.04)
        with self.state.lock:
            self.state.add(prompt=prompt, compute=compute, hbm=hbm, external=external, n=1, prefill=0.02)
        cached = hbm + external
        output = 5 if b.free_length else body["max_tokens"]
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()
        events = [
            {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
        ]
        for n in range(output):
            finish = ("stop" if b.free_length else "length") if n == output - 1 else None
            events.append(
                {"choices": [{"index": 0, "delta": {"content": f" w{n}"}, "finish_reason": finish}]}
            )
        if b.usage:
            usage: dict[str, Any] = {
                "prompt_tokens": prompt,
                "completion_tokens": output,
                "total_tokens": prompt + output,
            }
            if b.cached_tokens == "always" or (b.cached_tokens == "when-above-zero" and cached):
                usage["prompt_tokens_details"] = {"cached_tokens": cached}
            events.append({"choices": [], "usage": usage})
        chunks = [b"data: " + json.dumps(event).encode() + b"\n\n" for event in events] + [
            b"data: [DONE]\n\n"
        ]
        if b.buffered:
            chunks = [b"".join(chunks)]
        if b.cut:
            chunks = chunks[: len(chunks) // 2]
        for chunk in chunks:
            self.wfile.write(f"{len(chunk):x}\r\n".encode() + chunk + b"\r\n")
            self.wfile.flush()
            time.sleep(0.001)
        if b.cut:
            self.close_connection = True
            return
        self.wfile.write(b"0\r\n\r\n")

    def _look_up(self, body: dict[str, Any], prompt: int) -> tuple[int, int]:
        """(tokens from HBM, tokens from the tier) of this prompt, and everything stored that gets stored."""
        b, state = self.behaviour, self.state
        text = json.dumps(body["messages"])
        salt = None if b.ignores_salt else body.get("cache_salt")
        transfer = body.get("kv_transfer_params") or {}
        tag = next((v for k, v in transfer.items() if k.startswith("lmcache.tag.")), None)
        key = (tag if b.tier == "tag" else salt, text)
        whole = max(0, prompt - 1) // 16 * 16
        hbm = whole if b.prefix_cache and (salt, text) in state.hbm else 0
        external = whole if not hbm and b.tier and key in state.tier else 0
        if b.prefix_cache:
            state.hbm.add((salt, text))
        if b.tier and not (b.honours_skip_save and transfer.get("lmcache.skip_save")):
            state.tier.add(key)
        return hbm, external


class Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64


@contextlib.contextmanager
def endpoint(behaviour: Behaviour) -> Iterator[str]:
    """The URL of such an endpoint, for the length of a `with`."""
    handler = type("Bound", (Handler,), {"behaviour": behaviour, "state": State()})
    server = Server(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)
