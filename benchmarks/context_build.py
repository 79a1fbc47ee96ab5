"""How fast contexts are built, beside bare `tiktoken.Encoding.encode` on the same text in the same run.

    python benchmarks/context_build.py [--contexts 10] [--tokens 140000] [--corpus stdlib] [--rounds 5]

Prints one JSON object. Rates are tokens a second. CPU time decides the ratio for one core, since it does not count what
other processes take; wall time the one for two cores, best of the rounds. `threads_two_cores_wall` is what bare encoding
itself gains from two threads, one a context. `encode_ordinary_tokens_s_cpu` is what the build calls: tiktoken's own
shorter way, which gives the same ids for these texts.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

READY = "import loadgen.tokens as t; t.get('tekken').count('x')"
THEIRS = (
    "from mistral_common.tokens.tokenizers.tekken import Tekkenizer; from loadgen.tokens.tekken import shipped_file; "
    "Tekkenizer.from_file(shipped_file()).encode('x', bos=False, eos=False)"
)


def timed(work: Callable[[], Any]) -> tuple[float, float]:
    """(CPU, wall) seconds of `work` in this process."""
    cpu, wall = time.process_time(), time.perf_counter()
    work()
    return time.process_time() - cpu, time.perf_counter() - wall


def fresh(code: str, rounds: int) -> dict[str, float]:
    """Least CPU and wall seconds of a fresh interpreter that runs `code`, less those of one that does nothing."""

    def once(code: str) -> tuple[float, float]:
        before, wall = os.times(), time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).resolve().parents[1])
        after = os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return cpu, time.perf_counter() - wall

    empty = [once("pass") for _ in range(rounds)]
    found = [once(code) for _ in range(rounds)]
    return {
        "cpu_s": min(cpu for cpu, _ in found) - min(cpu for cpu, _ in empty),
        "wall_s": min(wall for _, wall in found) - min(wall for _, wall in empty),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--contexts", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=140_000)
    parser.add_argument("--corpus", default="stdlib")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()

    from loadgen import tokens
    from loadgen.corpus.build import build
    from loadgen.corpus.recipe import resolve

    tokenizer = tokens.get("tekken")
    encoding = tokenizer._encoding  # type: ignore[attr-defined]
    wanted = args.contexts * args.tokens
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "contexts"

        def make(processes: int) -> Callable[[], Any]:
            return lambda: build(
                resolve(args.corpus),
                n=args.contexts,
                tokens=args.tokens,
                out=out,
                tokenizer=tokenizer,
                processes=processes,
            )

        make(1)()
        texts = [path.read_text(encoding="utf-8") for path in sorted(out.glob("context-*.txt"))]

        def bare() -> None:
            for text in texts:
                encoding.encode(text, disallowed_special=())

        def ordinary() -> None:
            for text in texts:
                encoding.encode_ordinary(text)

        def bare_twice() -> None:
            with ThreadPoolExecutor(2) as pool:
                list(pool.map(lambda text: encoding.encode(text, disallowed_special=()), texts))

        assert sum(len(encoding.encode(text, disallowed_special=())) for text in texts) == wanted
        rounds = [
            (timed(bare), timed(make(1)), timed(make(2)), timed(bare_twice), timed(ordinary))
            for _ in range(args.rounds)
        ]
    bare_cpu, bare_wall = (min(found[0][which] for found in rounds) for which in (0, 1))
    one_cpu, one_wall = (min(found[1][which] for found in rounds) for which in (0, 1))
    two_wall, threads_wall = (min(found[which][1] for found in rounds) for which in (2, 3))
    ordinary_cpu = min(found[4][0] for found in rounds)
    print(
        json.dumps(
            {
                "contexts": args.contexts,
                "tokens": args.tokens,
                "bare_encode_tokens_s_cpu": round(wanted / bare_cpu),
                "build_tokens_s_cpu": round(wanted / one_cpu),
                "ratio_one_core_cpu": round(bare_cpu / one_cpu, 3),
                "ratio_one_core_wall": round(bare_wall / one_wall, 3),
                "ratio_two_cores_wall": round(bare_wall / two_wall, 3),
                "threads_two_cores_wall": round(bare_wall / threads_wall, 3),
                "encode_ordinary_tokens_s_cpu": round(wanted / ordinary_cpu),
                "build_wall_s": {"1": round(one_wall, 3), "2": round(two_wall, 3)},
                "tokenizer_ready": fresh(READY, args.rounds),
                "mistral_common_ready": fresh(THEIRS, args.rounds),
                "machine": {
                    "cpus": os.cpu_count(),
                    "processor": next(
                        (
                            line.split(":")[1].strip()
                            for line in Path("/proc/cpuinfo").read_text().splitlines()
                            if "model name" in line
                        ),
                        platform.processor(),
                    ),
                    "python": platform.python_version(),
                    "load": os.getloadavg()[0],
                },
            },
            indent=1,
        )
    )


if __name__ == "__main__":
    main()
