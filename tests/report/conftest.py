from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from synthetic import MONO, WALL, client_line

from loadgen.measure.journal import SampleWriter
from loadgen.measure.run import Clock, Endpoint, Plan, RunInfo, write_run
from loadgen.measure.sample import Sample

MakeRun = Callable[..., Path]


@pytest.fixture
def make_run(tmp_path: Path) -> MakeRun:
    """`make_run(samples, name=…, arm=…, scale=…, client=[…], **fields of RunInfo)` writes a run folder and returns it."""

    def make(
        samples: Iterable[Sample],
        *,
        name: str = "run",
        arm: str = "off",
        scale: float = 1.0,
        simulated: str | None = None,
        client: list[dict[str, Any]] | None = None,
        **fields: Any,
    ) -> Path:
        folder = tmp_path / name
        folder.mkdir()
        everything = list(samples)
        planned: dict[str, int] = {}
        for sample in everything:
            planned[sample.session] = max(planned.get(sample.session, 0), sample.turn + 1)
        values: dict[str, Any] = {
            "run": name,
            "arm": arm,
            "created": "2026-06-16T00:00:00Z",
            "state": "finished",
            "endpoint": Endpoint(url="http://127.0.0.1:1", model="m", time_scale=scale, simulated=simulated),
            "plan": Plan(sessions=len(planned), turns=sum(planned.values()), turns_by_session=planned),
            "clocks": {"w0": Clock(mono_ns=MONO, wall_ns=WALL)},
        }
        write_run(folder, RunInfo(**(values | fields)))
        with SampleWriter(folder / "samples-w0.jsonl") as writer:
            for sample in everything:
                writer.write(sample)
        lines = [client_line()] if client is None else client
        (folder / "client-w0.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        return folder

    return make
