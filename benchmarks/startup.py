"""How long `loadgen --help` and its like take, beside a Python that does nothing, in the same run.

Prints medians of CPU time (user and system, of the process alone) and of wall time. CPU time is what a busy machine
leaves alone; the goal is 0.3 s of wall time on a quiet one.
"""

from __future__ import annotations

import os
import platform
import statistics
import subprocess
import sys
import time

REPEATS = 15
COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "loadgen --help": ["-m", "loadgen", "--help"],
    "loadgen --version": ["-m", "loadgen", "--version"],
    "loadgen run --help": ["-m", "loadgen", "run", "--help"],
    "loadgen gate --help": ["-m", "loadgen", "gate", "--help"],
    "loadgen explain": ["-m", "loadgen", "explain", "loop_lag"],
    "locust --help": ["-m", "locust", "--help"],
}


def once(words: list[str]) -> tuple[float, float]:
    """(CPU seconds, wall seconds) of one process, its children included."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, *words], stdout=subprocess.DEVNULL)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} ended with {process.returncode}")
    return used.ru_utime + used.ru_stime, time.perf_counter() - began


def main() -> None:
    print(
        f"{platform.processor() or platform.machine()}, Python {platform.python_version()}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    )
    floor = None
    for name, words in COMMANDS.items():
        once(words)  # byte code and page cache
        taken = [once(words) for _ in range(REPEATS)]
        cpu, wall = (statistics.median(column) for column in zip(*taken, strict=True))
        floor = floor or cpu
        print(
            f"{name:22s} {cpu * 1000:6.0f} ms CPU ({cpu / floor:4.1f} x python)  {wall * 1000:6.0f} ms wall, best {min(w for _, w in taken) * 1000:.0f}"
        )


if __name__ == "__main__":
    main()
