"""`loadgen run` as a whole, watched from outside: what its samples say, and what CPU and memory all its processes took."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import stamped
from accounts import ranks
from process_tree import Watch

from loadgen.measure.journal import read_samples
from loadgen.measure.run import read_run


def measured(
    arguments: Sequence[Any], folder: Path, *, place: Sequence[str], turns: int, ttft_ms: float
) -> dict[str, Any]:
    """Run it behind the command `place` and account for it. CPU is that of all its processes between the first intended
    start and the last turn's end; `ttft_ms` is what the server was set to."""
    command = [
        *place,
        sys.executable,
        "-m",
        "loadgen",
        "run",
        *map(str, arguments),
        "--out",
        str(folder / "runs"),
    ]
    inherited = os.environ.get("PYTHONPATH")
    path = os.pathsep.join([str(stamped.HERE.parent), *([inherited] if inherited else [])])
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=os.environ | {"PYTHONPATH": path})
        watch = Watch(process.pid)
        code = process.wait()
    runs = list((folder / "runs").iterdir()) if (folder / "runs").exists() else []
    if code not in (0, 3) or not runs:
        raise SystemExit(f"loadgen run ended with {code}:\n{(folder / 'log').read_text()}")
    info, samples = read_run(runs[0]), list(read_samples(runs[0]))
    failed = [s for s in samples if s.error is not None or s.first_token_ns is None]
    if failed or len(samples) != turns:
        raise SystemExit(f"{len(samples)} samples of {turns}, {len(failed)} failed, the first: {failed[:1]}")
    begin, end = min(s.intended_ns for s in samples), max(s.end_ns for s in samples)
    errors = [((s.first_token_ns or 0) - (s.sent_ns or s.send_ns)) / 1e6 - ttft_ms for s in samples]
    return {
        "error_ms": ranks(errors),
        "lag_us": ranks([(s.lag_ns or 0) / 1e3 for s in samples]),
        "turns": len(samples),
        "coalesced": sum(s.coalesced for s in samples),
        "chunks": sum(s.chunks for s in samples),
        "cpu_s": watch.cpu_s(begin, end),
        "beside_cpu_s": watch.total_s - watch.cpu_s(begin, end),
        "wall_s": (end - begin) / 1e9,
        "rss_mb": watch.rss_mb,
        "own_mb": watch.own_mb,
        "incidents": [i.code for i in info.incidents],
        "invalid": [
            reason["code"] for reason in json.loads((runs[0] / "summary.json").read_text())["reasons"]
        ],
    }
