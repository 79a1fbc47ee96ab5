"""A scripted model server for tests: speaks chat, responses and messages, and keeps what it was asked, byte for byte."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web

Json = dict[str, Any]


@dataclass
class Say:
    """One answer. `calls` are (id, name, arguments). `pause_s` lies between two pieces."""

    text: str = ""
    calls: list[tuple[str, str, Json]] = field(default_factory=list)
    thinking: str = ""
    pause_s: float = 0.0
    status: int = 200


@dataclass
class Seen:
    method: str
    target: str
    headers: list[tuple[str, str]]
    body: bytes
    finished: bool = False  # the answer was sent to its end

    @property
    def json(self) -> Json:
        value: Json = json.loads(self.body)
        return value


Script = Callable[[Seen], Say]


class Upstream:
    """Context manager; serves in a thread of its own. `url` has no /v1."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self.seen: list[Seen] = []
        self._busy = 0
        self._loop = asyncio.new_event_loop()
        self._up = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Upstream:
        self._thread.start()
        assert self._up.wait(10)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(10)

    def wait_idle(self, timeout_s: float = 10.0) -> None:
        """Wait until no request is in work: answered, or its client is gone."""
        deadline = time.monotonic() + timeout_s
        while self._busy and time.monotonic() < deadline:
            time.sleep(0.01)
        assert not self._busy

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._main())

    async def _main(self) -> None:
        self._stop = asyncio.Event()
        app = web.Application(client_max_size=1 << 30)
        app.router.add_route("*", "/{tail:.*}", self._handle)
        runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=0.1, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        self._up.set()
        await self._stop.wait()
        await runner.cleanup()

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        self._busy += 1
        try:
            return await self._answer(request)
        finally:
            self._busy -= 1

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        seen = Seen(request.method, request.raw_path, list(request.headers.items()), await request.read())
        self.seen.append(seen)
        path = request.path
        if path.endswith("/count_tokens"):
            return web.json_response({"input_tokens": 7})
        shape = next((s for ending, s in SHAPES.items() if path.endswith(ending)), None)
        if request.method != "POST" or shape is None:
            return web.json_response({"object": "list", "data": [{"id": "scripted", "object": "model"}]})
        say = self._script(seen)
        number = len(self.seen)
        if say.status != 200:
            error = {
                "type": "error",
                "error": {"type": "scripted", "message": "scripted error", "code": say.status},
            }
            return web.json_response(error, status=say.status)
        if not seen.json.get("stream"):
            return web.json_response(shape.whole(say, number, len(seen.body)))
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "X-Number": str(number)}
        )
        await response.prepare(request)
        for piece in shape.pieces(say, number, len(seen.body)):
            if say.pause_s:
                await asyncio.sleep(say.pause_s)
            await response.write(piece)
        await response.write_eof()
        seen.finished = True
        return response


def _words(text: str) -> Iterator[str]:
    for i, word in enumerate(text.split(" ")):
        yield word if i == 0 else f" {word}"


def _event(value: Json) -> bytes:
    return f"event: {value['type']}\ndata: {json.dumps(value)}\n\n".encode()


class Chat:
    @staticmethod
    def usage(say: Say, size: int) -> Json:
        out = len(say.text.split()) + 8 * len(say.calls) + len(say.thinking.split())
        return {
            "prompt_tokens": size // 4,
            "completion_tokens": out,
            "total_tokens": size // 4 + out,
            "prompt_tokens_details": {"cached_tokens": size // 8},
        }

    @staticmethod
    def calls(say: Say) -> list[Json]:
        return [
            {"id": i, "type": "function", "function": {"name": n, "arguments": json.dumps(a)}}
            for i, n, a in say.calls
        ]

    @classmethod
    def whole(cls, say: Say, number: int, size: int) -> Json:
        message: Json = {"role": "assistant", "content": say.text or None}
        if say.calls:
            message["tool_calls"] = cls.calls(say)
        if say.thinking:
            message["reasoning"] = say.thinking
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if say.calls else "stop"}
        return {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion",
            "created": 1,
            "model": "scripted",
            "choices": [choice],
            "usage": cls.usage(say, size),
        }

    @classmethod
    def pieces(cls, say: Say, number: int, size: int) -> Iterator[bytes]:
        def chunk(delta: Json, finish: str | None = None) -> bytes:
            value = {
                "id": f"chatcmpl-{number}",
                "object": "chat.completion.chunk",
                "created": 1,
                "model": "scripted",
                "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            }
            return f"data: {json.dumps(value)}\n\n".encode()

        yield chunk({"role": "assistant", "content": ""})
        for word in _words(say.thinking) if say.thinking else ():
            yield chunk({"reasoning": word})
        for word in _words(say.text) if say.text else ():
            yield chunk({"content": word})
        for index, call in enumerate(cls.calls(say)):
            arguments = call["function"].pop("arguments")
            yield chunk({"tool_calls": [call | {"index": index}]})
            for start in range(0, len(arguments), 7):
                part = {"index": index, "function": {"arguments": arguments[start : start + 7]}}
                yield chunk({"tool_calls": [part]})
        yield chunk({}, "tool_calls" if say.calls else "stop")
        usage = {
            "id": f"chatcmpl-{number}",
            "object": "chat.completion.chunk",
            "created": 1,
            "model": "scripted",
        }
        yield f"data: {json.dumps(usage | {'choices': [], 'usage': cls.usage(say, size)})}\n\n".encode()
        yield b"data: [DONE]\n\n"


class Messages:
    @staticmethod
    def blocks(say: Say) -> list[Json]:
        result: list[Json] = []
        if say.thinking:
            result.append({"type": "thinking", "thinking": say.thinking, "signature": "c2lnbmF0dXJl" * 4})
        if say.text:
            result.append({"type": "text", "text": say.text})
        return result + [{"type": "tool_use", "id": i, "name": n, "input": a} for i, n, a in say.calls]

    @classmethod
    def whole(cls, say: Say, number: int, size: int) -> Json:
        return {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": "scripted",
            "content": cls.blocks(say),
            "stop_reason": "tool_use" if say.calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": size // 8,
                "cache_read_input_tokens": size // 8,
                "cache_creation_input_tokens": 0,
                "output_tokens": 5,
            },
        }

    @classmethod
    def pieces(cls, say: Say, number: int, size: int) -> Iterator[bytes]:
        whole = cls.whole(say, number, size)
        start = whole | {"content": [], "stop_reason": None, "usage": whole["usage"] | {"output_tokens": 1}}
        yield _event({"type": "message_start", "message": start})
        yield _event({"type": "ping"})
        for index, block in enumerate(whole["content"]):
            empty, deltas = cls._deltas(block)
            yield _event({"type": "content_block_start", "index": index, "content_block": empty})
            for delta in deltas:
                yield _event({"type": "content_block_delta", "index": index, "delta": delta})
            yield _event({"type": "content_block_stop", "index": index})
        delta = {"stop_reason": whole["stop_reason"], "stop_sequence": None}
        yield _event({"type": "message_delta", "delta": delta, "usage": {"output_tokens": 5}})
        yield _event({"type": "message_stop"})

    @staticmethod
    def _deltas(block: Json) -> tuple[Json, list[Json]]:
        match block["type"]:
            case "text":
                return {"type": "text", "text": ""}, [
                    {"type": "text_delta", "text": w} for w in _words(block["text"])
                ]
            case "thinking":
                deltas = [{"type": "thinking_delta", "thinking": w} for w in _words(block["thinking"])]
                signature = {"type": "signature_delta", "signature": block["signature"]}
                return {"type": "thinking", "thinking": "", "signature": ""}, [*deltas, signature]
            case _:
                text = json.dumps(block["input"])
                pieces = [text[i : i + 9] for i in range(0, len(text), 9)]
                return block | {"input": {}}, [
                    {"type": "input_json_delta", "partial_json": p} for p in pieces
                ]


class Responses:
    @staticmethod
    def output(say: Say, number: int) -> list[Json]:
        items: list[Json] = []
        if say.thinking:
            summary = [{"type": "summary_text", "text": say.thinking}]
            items.append({"type": "reasoning", "id": f"rs_{number}", "summary": summary})
        if say.text:
            content = [{"type": "output_text", "text": say.text, "annotations": []}]
            items.append(
                {
                    "type": "message",
                    "id": f"msg_{number}",
                    "role": "assistant",
                    "status": "completed",
                    "content": content,
                }
            )
        for i, n, a in say.calls:
            items.append(
                {
                    "type": "function_call",
                    "id": f"fc_{i}",
                    "call_id": i,
                    "name": n,
                    "arguments": json.dumps(a),
                    "status": "completed",
                }
            )
        return items

    @classmethod
    def whole(cls, say: Say, number: int, size: int) -> Json:
        return {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": 1,
            "status": "completed",
            "model": "scripted",
            "output": cls.output(say, number),
            "parallel_tool_calls": True,
            "tool_choice": "auto",
            "tools": [],
            "usage": {
                "input_tokens": size // 4,
                "input_tokens_details": {"cached_tokens": size // 8},
                "output_tokens": 6,
                "output_tokens_details": {"reasoning_tokens": 2 if say.thinking else 0},
                "total_tokens": size // 4 + 6,
            },
        }

    @classmethod
    def pieces(cls, say: Say, number: int, size: int) -> Iterator[bytes]:
        whole = cls.whole(say, number, size)
        n = 0

        def event(kind: str, **fields: Any) -> bytes:
            nonlocal n
            n += 1
            return _event({"type": kind, "sequence_number": n} | fields)

        yield event(
            "response.created", response=whole | {"status": "in_progress", "output": [], "usage": None}
        )
        for index, item in enumerate(whole["output"]):
            yield event(
                "response.output_item.added", output_index=index, item=item | {"status": "in_progress"}
            )
            common = {"item_id": item["id"], "output_index": index}
            if item["type"] == "message":
                part = {"type": "output_text", "text": "", "annotations": []}
                yield event("response.content_part.added", content_index=0, part=part, **common)
                for word in _words(say.text):
                    yield event(
                        "response.output_text.delta", content_index=0, delta=word, logprobs=[], **common
                    )
                yield event(
                    "response.output_text.done", content_index=0, text=say.text, logprobs=[], **common
                )
            elif item["type"] == "function_call":
                yield event("response.function_call_arguments.delta", delta=item["arguments"], **common)
                yield event("response.function_call_arguments.done", arguments=item["arguments"], **common)
            else:
                yield event(
                    "response.reasoning_summary_text.delta", summary_index=0, delta=say.thinking, **common
                )
            yield event("response.output_item.done", output_index=index, item=item)
        yield event("response.completed", response=whole)


SHAPES: dict[str, Any] = {"/chat/completions": Chat, "/messages": Messages, "/responses": Responses}
