"""Starts `servers/stamped.c` on CPU 0 and clients on CPU 1, so that each has a core of its own.

On a machine with one core both share it and the figures are worth little; the machine is printed with them.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import subprocess
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SOURCE = HERE / "servers" / "stamped.c"


def cpus() -> tuple[int, int]:
    """CPU of the server and CPU of the client."""
    allowed = sorted(os.sched_getaffinity(0))
    return allowed[0], allowed[-1]


def pinned(cpu: int) -> list[str]:
    """Front of a command that runs on one CPU; before everything else with LOADGEN_BENCH_REALTIME=1 (needs root), so
    that a busy machine does not end up in the figures."""
    first = ["chrt", "--rr", "1"] if os.environ.get("LOADGEN_BENCH_REALTIME") == "1" else []
    return [*first, "taskset", "-c", str(cpu)]


def machine() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    return f"{model}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}, Linux {platform.release()}, Python {platform.python_version()}{', real-time' if os.environ.get('LOADGEN_BENCH_REALTIME') == '1' else ''}"


def build() -> Path:
    """Compile the server once for each version of its source."""
    name = hashlib.sha256(SOURCE.read_bytes()).hexdigest()[:16]
    binary = Path(tempfile.gettempdir()) / f"loadgen-stamped-{os.getuid()}-{name}"
    if not binary.exists():
        made = binary.with_suffix(f".{os.getpid()}")
        subprocess.run(["gcc", "-O2", "-o", str(made), str(SOURCE)], check=True)
        made.rename(binary)
    return binary


@contextlib.contextmanager
def server(
    *,
    ttft_us: int,
    itl_us: int,
    tokens: int,
    jitter_percent: int = 0,
    step_us: int = 0,
    cpu: int | None = None,
) -> Iterator[int]:
    """A running server on `cpu` (default: the first); gives its port."""
    command = [str(build()), *map(str, (ttft_us, itl_us, tokens, jitter_percent, step_us))]
    place = pinned(cpus()[0] if cpu is None else cpu)
    process = subprocess.Popen([*place, *command], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield int(process.stdout.readline())
    finally:
        process.terminate()
        process.wait()


def stats(port: int) -> dict[str, Any]:
    """How late the server itself was since the last call, in microseconds."""
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/stats", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return found


def client(script: str, arguments: Sequence[Any]) -> dict[str, Any]:
    """Run a client script of this folder on its own CPU; it prints one JSON object."""
    command = [*pinned(cpus()[1]), sys.executable, str(HERE / script), *map(str, arguments)]
    environment = os.environ | {"PYTHONPATH": str(HERE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise SystemExit(f"{script} failed:\n{done.stderr}")
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
