"""Delivery error of the simulated endpoint: how late its tokens leave, with many streams on one core.

    python benchmarks/sim_delivery.py [--streams 1,50,200] [--tokens 400] [--scale 1]

The server runs on core 0 alone, the reader on the others. The error is the server's own: from the deadline of a
step to the moment at which a token was handed to the kernel (`loadgen_sim_delivery_error_seconds`). Beside it stands
a reference from the same run: how late a bare timer of 1 ms fires in a process that does nothing else, which is what
the machine gives anybody. Both are wall time; times the time scale they are what a simulated figure may be off by.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import selectors
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from typing import Any

ARRIVALS_S = 1.5  # all requests come at once; their handling delays the first steps, and is told apart


def bare_timer(seconds: float = 2.0) -> list[float]:
    """Lateness of time.sleep to absolute deadlines of 1 ms, in seconds, sorted."""
    late = []
    begin = deadline = time.monotonic()
    while deadline < begin + seconds:
        deadline += 0.001
        delay = deadline - time.monotonic()
        if delay > 0:
            time.sleep(delay)
        late.append(time.monotonic() - deadline)
    return sorted(late)


def read_all(host: str, port: int, model: str, streams: int, tokens: int) -> int:
    """Send `streams` requests at once and drain them; bytes received."""
    waiting = selectors.DefaultSelector()
    for number in range(streams):
        body = json.dumps(
            {"model": model, "messages": [{"role": "user", "content": f"stream {number}"}], "max_tokens": tokens, "ignore_eos": True, "stream": True}
        ).encode()  # fmt: skip
        connection = socket.create_connection((host, port))
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nConnection: close\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        connection.setblocking(False)
        waiting.register(connection, selectors.EVENT_READ)
    received = 0
    while waiting.get_map():
        for key, _ in waiting.select(30):
            data = key.fileobj.recv(1 << 16)  # type: ignore[union-attr]
            received += len(data)
            if not data:
                waiting.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]
    return received


def lateness(url: str) -> dict[float, float]:
    """Tokens by upper bound of their lateness, cumulative."""
    from prometheus_client.parser import text_string_to_metric_families

    text = urllib.request.urlopen(url + "/metrics").read().decode()
    return {
        float(sample.labels["le"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "loadgen_sim_delivery_error_seconds_bucket"
    }


def bound(counts: dict[float, float], share: float) -> float:
    """Upper bound of the bucket in which the rank of `share` falls."""
    return next(le for le, count in sorted(counts.items()) if count >= share * counts[float("inf")])


def over(counts: dict[float, float]) -> float:
    """Share of the tokens that were over 2 ms late."""
    return 1 - counts[0.002] / counts[float("inf")]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--streams", default="1,50,200")
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--scale", type=float, default=1.0)
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    cores = sorted(os.sched_getaffinity(0))
    command = [
        sys.executable,
        "-m",
        "loadgen",
        "sim",
        "--port",
        "0",
        "--json",
        "--arm",
        "off",
        "--scale",
        str(args.scale),
    ]
    server = subprocess.Popen(
        command, stdout=subprocess.PIPE, preexec_fn=lambda: os.sched_setaffinity(0, cores[:1])
    )
    if len(cores) > 1:
        os.sched_setaffinity(0, cores[1:])
    rows: list[dict[str, Any]] = []
    try:
        assert server.stdout is not None
        facts = json.loads(server.stdout.readline())
        host, port = facts["url"].removeprefix("http://").split(":")
        timer = bare_timer()
        for streams in (int(part) for part in args.streams.split(",")):
            before = lateness(facts["url"])
            used = cpu_s(server.pid)
            begin = time.monotonic()
            reader = threading.Thread(
                target=read_all, args=(host, int(port), facts["model"], streams, args.tokens)
            )
            reader.start()
            time.sleep(ARRIVALS_S)
            settled = lateness(facts["url"])
            reader.join()
            wall = time.monotonic() - begin
            after = lateness(facts["url"])
            spent = cpu_s(server.pid) - used
            whole, steady = (
                {le: count - earlier[le] for le, count in after.items()} for earlier in (before, settled)
            )
            tokens = int(whole[float("inf")])
            rows.append(
                {
                    "streams": streams, "tokens": tokens, "steady_tokens": int(steady[float("inf")]),
                    "p50_ms_at_most": bound(steady, 0.5) * 1e3, "p99_ms_at_most": bound(steady, 0.99) * 1e3,
                    "share_over_2_ms": over(steady), "share_over_2_ms_with_arrivals": over(whole),
                    "cpu_us_per_token": spent / tokens * 1e6, "core": spent / wall,
                }
            )  # fmt: skip
    finally:
        server.terminate()
        server.wait()
    reference = {
        "bare_timer_p50_ms": timer[len(timer) // 2] * 1e3,
        "bare_timer_p99_ms": timer[int(len(timer) * 0.99)] * 1e3,
    }
    if args.json:
        print(
            json.dumps(
                {
                    "machine": platform.platform(),
                    "cores": len(cores),
                    "scale": args.scale,
                    **reference,
                    "rows": rows,
                },
                indent=1,
            )
        )
        return
    print(
        f"{platform.platform()}, {len(cores)} cores, load {os.getloadavg()[0]:.1f}, time scale {args.scale:g}"
    )
    print(
        f"bare 1 ms timer: p50 {reference['bare_timer_p50_ms']:.3f} ms, p99 {reference['bare_timer_p99_ms']:.3f} ms late"
    )
    for row in rows:
        print(
            f"{row['streams']:4} streams, {row['tokens']:6} tokens: p50 <= {row['p50_ms_at_most']:g} ms, p99 <= {row['p99_ms_at_most']:g} ms, "
            f"{row['share_over_2_ms']:.2%} over 2 ms ({row['share_over_2_ms_with_arrivals']:.2%} with the arrivals); {row['cpu_us_per_token']:.1f} us of CPU a token, {row['core']:.0%} of a core"
        )


def cpu_s(pid: int) -> float:
    """CPU seconds of a process so far (Linux)."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


if __name__ == "__main__":
    main()
