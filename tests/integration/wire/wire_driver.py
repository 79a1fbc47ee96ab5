"""The client under test, in a process of its own: one JSON command a line in, one JSON result a line out.

A command is {"url", "rounds": [[turn, …], …]}: the turns of a round run at the same time, rounds one after
another. A turn is {"script", "connection", "api", "collect", "bytes", "timeouts", "abort_after_s",
"kill_after_s", "headers"}, or {"sleep_s", "spin_s", "work_s"}: no request, and a loop that is busy after a while.
Connections of one name are kept within a command. It is run by `python -m gevent.monkey`, which patches as Locust does:
the SDK needs that, and our own client must not mind.
"""

from __future__ import annotations

import dataclasses
import json
import ssl
import sys
import time
from typing import Any

import gevent

from loadgen.replay.wire import apis
from loadgen.replay.wire.api import Output
from loadgen.replay.wire.connection import Connection
from loadgen.replay.wire.exchange import Request, Timeouts
from loadgen.replay.wire.target import Target


def run(command: dict[str, Any]) -> list[dict[str, Any]]:
    context = ssl.create_default_context(cafile=command["ca"]) if command.get("ca") else None
    connections: dict[str, Any] = {}
    results: list[dict[str, Any]] = []

    def connection(turn: dict[str, Any]) -> Any:
        name = turn.get("connection") or f"own-{len(connections)}"
        if name not in connections:
            target = Target.parse(turn.get("url", command["url"]))
            headers = [tuple(pair) for pair in command.get("headers", ())]
            limit = command.get("connect_timeout_s", 5.0)
            if command.get("client") == "openai":
                from loadgen.replay.wire.openai_client import OpenAIConnection

                connections[name] = OpenAIConnection(
                    target, headers=headers, tls_context=context, connect_timeout_s=limit
                )
            else:
                connections[name] = Connection(
                    target,
                    headers=headers,
                    tls_context=context,
                    connect_timeout_s=limit,
                    idle_s=command.get("idle_s", 4.0),
                    kernel_stamps=command.get("kernel_stamps", True),
                    proxy=Target.parse(command["proxy"]) if "proxy" in command else None,
                )
        return connections[name]

    def play(turn: dict[str, Any], use: Any) -> dict[str, Any]:
        if turn.keys() & {"sleep_s", "spin_s", "work_s"}:
            gevent.sleep(turn.get("sleep_s", 0.0))
            # A busy worker: the loop does not get to its sockets, for some wall or CPU time.
            end, work = (
                time.monotonic() + turn.get("spin_s", 0.0),
                time.thread_time() + turn.get("work_s", 0.0),
            )
            while time.monotonic() < end or time.thread_time() < work:
                pass
            return {}
        api = apis.get(turn.get("api", "chat"))
        output = Output(tokens=3, forced=api.FORCES_LENGTH)
        head, tail = api.envelope("tiny", output)
        text = (
            {"token_ids": [1, 2, 3]}
            if api.NAME == "completions"
            else {"role": "user", "content": "x" * turn.get("bytes", 10)}
        )
        request = Request(
            api.PATH,
            (head, memoryview(api.message(text)), tail),
            headers=[("X-Script", turn.get("script", "healthy")), *map(tuple, turn.get("headers", ()))],
            events=lambda: api.events(collect=turn.get("collect", True)),
        )
        limits = {"first_token_s": 5.0, "stall_s": 5.0, "total_s": 20.0} | turn.get("timeouts", {})
        if "abort_after_s" in turn:
            gevent.spawn_later(turn["abort_after_s"], use.abort)
        return dataclasses.asdict(use.exchange(request, Timeouts(**limits)))

    for turns in command["rounds"]:
        greenlets = [gevent.spawn(play, turn, connection(turn)) for turn in turns]
        for turn, greenlet in zip(turns, greenlets, strict=True):
            if "kill_after_s" in turn:
                gevent.spawn_later(turn["kill_after_s"], greenlet.kill)
        gevent.joinall(greenlets)
        for greenlet in greenlets:
            value = greenlet.value
            if isinstance(value, dict):
                results.append(value)
            else:
                results.append({"raised": repr(value if greenlet.successful() else greenlet.exception)})
    for use in connections.values():
        use.close()
    return results


def main() -> None:
    for line in sys.stdin:
        print(json.dumps(run(json.loads(line)), default=str), flush=True)


if __name__ == "__main__":
    main()
