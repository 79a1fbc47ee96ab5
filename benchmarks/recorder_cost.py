"""What the recorder adds: latency of a chunk, and CPU above plain forwarding.

    python benchmarks/recorder_cost.py [--streams 50] [--rate 20] [--seconds 10] [--repeat 3]

A server in a process of its own streams chunks that carry their send time; one client reads them directly, through the
forwarder without recording, and through the whole recorder, in the same run. Latency is from the server's write to the
client's read (both on this machine's monotonic clock), so that the difference of the first two rows is forwarding and
the difference of the last two recording. CPU is user and system time of the recorder's processes from /proc.
Prints the machine, the three rows and their differences. Other load on the machine only adds latency, so each row is
that of the repetition with the lowest p99; with other work running, p99 says little all the same.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import random
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import aiohttp
from aiohttp import web

from loadgen.record.forwarder import Config
from loadgen.record.proxy import Proxy

TICK = os.sysconf("SC_CLK_TCK")
START_WITHIN_S = 2.0  # agents do not all ask, and end, at the same moment
PAYLOAD = "a few words of an answer"


async def serve(port: int, rate: float, chunks: int) -> None:
    async def answer(request: web.Request) -> web.StreamResponse:
        await request.read()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        start = time.monotonic() + random.random() / rate  # streams out of step
        for i in range(chunks):
            await asyncio.sleep(max(start + i / rate - time.monotonic(), 0))
            event = {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 1764412345,
                "model": "m",
                "at": time.monotonic_ns(),
                "choices": [
                    {"index": 0, "delta": {"content": PAYLOAD}, "logprobs": None, "finish_reason": None}
                ],
            }
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    app = web.Application()
    app.router.add_post("/v1/chat/completions", answer)
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    await asyncio.Event().wait()


async def play(url: str, streams: int) -> list[int]:
    """Latencies of all chunks in ns."""
    latencies: list[int] = []

    async def one(session: aiohttp.ClientSession, number: int) -> None:
        await asyncio.sleep(random.uniform(0, START_WITHIN_S))
        body = {
            "model": "m",
            "stream": True,
            "messages": [{"role": "user", "content": f"{number} " + "context " * 2000}],
        }
        async with session.post(f"{url}/v1/chat/completions", json=body) as response:
            async for line in response.content:
                now = time.monotonic_ns()
                at = line.find(b'"at": ')
                if at >= 0:
                    latencies.append(now - int(line[at + 6 : line.index(b",", at)]))

    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=None),
        read_bufsize=1 << 20,
    ) as session:
        await asyncio.gather(*(one(session, number) for number in range(streams)))
    return latencies


def cpu_s(pids: list[int]) -> float:
    total = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        total += int(fields[11]) + int(fields[12])
    return total / TICK


def children(pid: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Row:
    """The least disturbed of several repetitions."""

    def __init__(self) -> None:
        self.chunks = 0
        self.p50 = self.p99 = self.top = float("inf")
        self.share = 0.0  # % of a core per 1,000 chunks/s

    def add(self, latencies: list[int], cpu: float) -> None:
        latencies.sort()
        size = len(latencies)
        p50, p99, top = (latencies[min(int(q * size), size - 1)] / 1e6 for q in (0.5, 0.99, 1))
        if p99 < self.p99:
            self.chunks, self.p50, self.p99, self.top = size, p50, p99, top
            self.share = 1e5 * cpu / size

    def show(self, name: str) -> None:
        print(
            f"{name:<12} {self.chunks:>8} {self.p50:>8.3f} {self.p99:>8.3f} {self.top:>8.3f} {self.share:>26.2f}"
        )


def record_once(url: str, streams: int) -> tuple[list[int], float]:
    with tempfile.TemporaryDirectory() as folder:
        command = [
            sys.executable,
            "-m",
            "loadgen",
            "record",
            "--upstream",
            url,
            "-o",
            f"{folder}/r.jsonl",
            "--json",
        ]
        recorder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert recorder.stdout is not None
        ready = json.loads(recorder.stdout.readline())
        pids = [recorder.pid, *children(recorder.pid)]
        before = cpu_s(pids)
        latencies = asyncio.run(play(ready["url"], streams))
        time.sleep(3)  # what the scribe does behind the last stream counts too
        used = cpu_s(pids) - before
        recorder.send_signal(signal.SIGINT)
        summary = json.loads(recorder.stdout.read().splitlines()[-1])
        recorder.wait()
        assert summary["turns"] == streams, summary
        return latencies, used


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20.0, help="chunks a second of each stream")
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    chunks = int(args.rate * args.seconds)
    if args.serve is not None:
        asyncio.run(serve(args.serve, args.rate, chunks))
    port = free_port()
    server = subprocess.Popen(
        [
            sys.executable,
            __file__,
            "--serve",
            str(port),
            "--rate",
            str(args.rate),
            "--seconds",
            str(args.seconds),
        ]
    )
    url = f"http://127.0.0.1:{port}"
    while socket.socket().connect_ex(("127.0.0.1", port)):
        time.sleep(0.05)
    print(
        f"{platform.machine()}, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, Python {platform.python_version()}"
    )
    print(f"{args.streams} streams of {args.rate:g} chunks/s, {args.seconds:g} s, best of {args.repeat}")
    print(
        f"{'':<12} {'chunks':>8} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'% core per 1,000 chunks/s':>26}"
    )
    direct, plain, recorded = Row(), Row(), Row()
    try:
        for _ in range(args.repeat):
            direct.add(asyncio.run(play(url, args.streams)), 0)
            with Proxy(Config(upstream=url, record=False)) as proxy:
                before = cpu_s([proxy.pid])
                latencies = asyncio.run(play(proxy.ready.url, args.streams))
                plain.add(latencies, cpu_s([proxy.pid]) - before)
            recorded.add(*record_once(url, args.streams))
    finally:
        server.kill()
    for name, one in (("direct", direct), ("forwarding", plain), ("recording", recorded)):
        one.show(name)
    p50, p99 = recorded.p50 - direct.p50, recorded.p99 - direct.p99
    print(f"added latency, recording - direct: p50 {p50:.3f} ms, p99 {p99:.3f} ms (limit 1)")
    print(
        f"CPU above plain forwarding: {recorded.share - plain.share:.2f} % of a core per 1,000 chunks/s (limit 3)"
    )


if __name__ == "__main__":
    main()
