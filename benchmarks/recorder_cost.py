"""What the recorder adds: latency of a chunk, and CPU above plain forwarding.

    python benchmarks/recorder_cost.py [--streams 50] [--rate 20] [--seconds 20]

A server in a process of its own streams chunks that carry their send time; one client reads them directly, through the
forwarder without recording, and through the whole recorder, in the same run. Latency is from the server's write to the
client's read (both on this machine's monotonic clock), so that the difference of the first two rows is forwarding and
the difference of the last two recording. CPU is user and system time of the recorder's processes from /proc.
Prints the machine, the three rows and their differences. Nothing else should run meanwhile.
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


def row(name: str, latencies: list[int], cpu: float | None) -> tuple[float, ...]:
    latencies.sort()
    p50, p99, top = (
        latencies[min(int(q * len(latencies)), len(latencies) - 1)] / 1e6 for q in (0.5, 0.99, 1)
    )
    share = None if cpu is None else 1e5 * cpu / len(latencies)  # % of a core per 1,000 chunks/s
    shown = "-" if share is None else f"{share:.2f}"
    print(f"{name:<12} {len(latencies):>8} {p50:>8.3f} {p99:>8.3f} {top:>8.3f} {shown:>24}")
    return p50, p99, share or 0.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--streams", type=int, default=50)
    parser.add_argument("--rate", type=float, default=20.0, help="chunks a second of each stream")
    parser.add_argument("--seconds", type=float, default=20.0)
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
    print(
        f"{args.streams} streams of {args.rate:g} chunks/s: {args.streams * args.rate:g} chunks/s for {args.seconds:g} s"
    )
    print(
        f"{'':<12} {'chunks':>8} {'p50 ms':>8} {'p99 ms':>8} {'max ms':>8} {'% core per 1,000 chunks/s':>24}"
    )
    try:
        direct = row("direct", asyncio.run(play(url, args.streams)), None)
        with Proxy(Config(upstream=url, record=False)) as proxy:
            before = cpu_s([proxy.pid])
            latencies = asyncio.run(play(proxy.ready.url, args.streams))
            plain = row("forwarding", latencies, cpu_s([proxy.pid]) - before)
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
            latencies = asyncio.run(play(ready["url"], args.streams))
            time.sleep(3)  # what the scribe does behind the last stream counts too
            used = cpu_s(pids) - before
            recorded = row("recording", latencies, used)
            recorder.send_signal(signal.SIGINT)
            summary = json.loads(recorder.stdout.read().splitlines()[-1])
            recorder.wait()
            assert summary["turns"] == args.streams, summary
    finally:
        server.kill()
    print(
        f"added latency, recording - direct: p50 {recorded[0] - direct[0]:.3f} ms, p99 {recorded[1] - direct[1]:.3f} ms (limit 1)"
    )
    print(
        f"CPU above plain forwarding: {recorded[2] - plain[2]:.2f} % of a core per 1,000 chunks/s (limit 3)"
    )


if __name__ == "__main__":
    main()
