"""CPU time of reading one `/metrics` page with the server probe, against parsing all of it.

    python benchmarks/metrics_page.py [PAGE]

Without a page of your own, one the size of vLLM's is made from the page in the tests.
"""

from __future__ import annotations

import platform
import sys
import time
from collections.abc import Callable
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from loadgen.measure.probes.server import parse

_TEST_PAGE = Path(__file__).parent.parent / "tests/measure/probes/pages/vllm-0.32-lmcache-mp.txt"


def _padded(text: str, size: int = 70_000) -> str:
    """`text` and histogram buckets that no probe asks for, up to `size` bytes."""
    lines = [
        f'vllm:padding_bucket{{engine="0",le="{n / 100}",model_name="micro"}} {n}.0'
        for n in range(size // 40)
    ]
    while len(text) + sum(map(len, lines)) + len(lines) > size:
        lines.pop()
    return text + "\n".join(lines) + "\n"


def _best_ms(action: Callable[[], object], repeats: int = 30) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        action()
        best = min(best, time.process_time() - start)
    return best * 1e3


def main() -> None:
    page = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else _padded(_TEST_PAGE.read_text())
    whole = _best_ms(lambda: [s for f in text_string_to_metric_families(page) for s in f.samples])
    probe = _best_ms(lambda: parse(page))
    print(f"{len(page)} bytes: whole page {whole:.2f} ms, probe {probe:.2f} ms, ratio {whole / probe:.1f}")
    print(f"Python {platform.python_version()}, {platform.machine()}, best of 30, CPU time")


if __name__ == "__main__":
    main()
