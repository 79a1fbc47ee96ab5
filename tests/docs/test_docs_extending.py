"""The examples of docs/extending.md do what they say, in under 80 lines each."""

from __future__ import annotations

import dataclasses
import importlib.util
import json
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import orjson
import pytest

from loadgen.cli import main
from loadgen.doctor.finding import Finding, Status
from loadgen.replay.wire import apis
from loadgen.replay.wire.api import NOTHING, TEXT, Api, Output
from loadgen.trace.formats import registry
from loadgen.trace.reader import open_trace

EXAMPLES = Path(__file__).resolve().parents[2] / "examples" / "extending"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_an_extension_takes_less_than_80_lines(path: Path) -> None:
    assert len(path.read_text().splitlines()) < 80


def test_a_format_is_imported_and_counts_what_it_leaves_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(registry, "FORMATS", (example("format_notes").FORMAT, *registry.FORMATS))
    first = [{"role": "user", "content": "What is in a.py?"}]
    second = [*first, {"role": "assistant", "content": "A class."}, {"role": "user", "content": "Rename it."}]
    rows: list[dict[str, Any]] = [
        {"chat": "a", "at": 100.0, "took": 2.0, "messages": first, "reply": "A class.", "in": 9, "out": 3},
        {"chat": "a", "at": 107.5, "took": 1.0, "messages": second, "reply": "Done.", "in": 20, "out": 2},
        {"chat": "b", "at": 101.0, "took": 1.0, "messages": [], "reply": "?"},
    ]
    log = tmp_path / "notes.jsonl"
    log.write_text("".join(json.dumps(row) + "\n" for row in rows) + "not JSON\n")
    assert main(["trace", "import", str(log), "-o", str(tmp_path / "trace.jsonl")]) == 0
    said = "".join(capsys.readouterr())
    assert "call without messages" in said
    assert "line that is no call" in said
    with open_trace(tmp_path / "trace.jsonl") as trace:
        (session,) = trace.sessions
        turns = trace.turns(session.id)
    assert [turn.input_tokens for turn in turns] == [9, 20]
    assert turns[1].append == second[2:]
    assert turns[1].gap is not None
    assert (turns[1].gap.kind, turns[1].gap.s) == ("human", 5.5)


def test_an_api_builds_bodies_and_reads_events(monkeypatch: pytest.MonkeyPatch) -> None:
    api: Api = example("api_generate")  # type: ignore[assignment]  # a module is the Api
    monkeypatch.setitem(apis._APIS, "generate", api)
    found = apis.get("generate")
    head, tail = found.envelope("m", Output(tokens=7))
    body = orjson.loads(head + b",".join(found.message({"token_ids": ids}) for ids in ([1, 2], [3])) + tail)
    assert body["input_ids"] == [1, 2, 3]
    assert body["sampling_params"]["min_new_tokens"] == 7
    reader = found.events(collect=True)
    steps = [("", 0, None), ("Hel", 1, None), ("Hello", 2, None), ("Hello!", 3, {"type": "length"})]
    kinds: Sequence[int] = [
        reader.read(
            {
                "text": text,
                "meta_info": {
                    "prompt_tokens": 3,
                    "completion_tokens": n,
                    "cached_tokens": 2,
                    "finish_reason": end,
                },
            }
        )
        for text, n, end in steps
    ]
    assert kinds == [NOTHING, TEXT, TEXT, TEXT]
    assert reader.usage is not None
    assert (reader.usage.prompt_tokens, reader.usage.output_tokens, reader.usage.cached_tokens) == (3, 3, 2)
    assert reader.answer is not None
    assert (reader.answer.text, reader.finish, reader.event_tokens) == ("Hello!", "length", 1)


@pytest.mark.parametrize(("running", "status"), [(0, Status.OK), (3, Status.WARN), (None, Status.SKIP)])
def test_a_probe_yields_findings(
    running: int | None, status: Status, monkeypatch: pytest.MonkeyPatch
) -> None:
    probe = example("probe_neighbours")
    monkeypatch.setattr(probe, "GAP_S", 0.0)
    page = b"" if running is None else f'vllm:num_requests_running{{engine="0"}} {running}\n'.encode()
    patient = SimpleNamespace(api=SimpleNamespace(request=lambda *_: (200, {}, page)))
    (finding,) = probe.examine(patient)
    assert isinstance(finding, Finding)
    assert finding.status is status
    assert bool(finding.remedy) == (status is Status.WARN)


def test_a_schedule_sets_arrivals_at_the_rate_it_says() -> None:
    ramp = example("schedule_ramp")

    @dataclasses.dataclass
    class Root:
        child: bool = False
        arrival_s: float = -1.0

    sessions = [Root() for _ in range(2000)] + [Root(child=True)]
    ramp.plan(SimpleNamespace(sessions=sessions), first_rate=1.0, last_rate=9.0, over_s=200.0, seed=1)
    arrivals = [session.arrival_s for session in sessions[:-1]]
    assert arrivals == sorted(arrivals)
    assert sessions[-1].arrival_s == -1.0, "a child starts with its parent"
    for begin, expected in ((0.0, 300.0), (100.0, 700.0), (200.0, 900.0)):  # integral of the rate over 100 s
        found = sum(begin <= at < begin + 100 for at in arrivals)
        assert abs(found - expected) < 5 * expected**0.5
    assert ramp.when(5.0, 2.0, 2.0, 10.0) == pytest.approx(2.5)
