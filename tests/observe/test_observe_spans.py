"""Spans of a run folder: what a tracing backend gets."""

from __future__ import annotations

import http.server
import json
import threading
from pathlib import Path

import pytest

from loadgen.cli import main
from loadgen.measure.journal import SampleWriter
from loadgen.measure.run import Clock, Endpoint, Plan, RunInfo, write_run
from loadgen.measure.sample import ErrorClass, Sample, Tiers, TurnClass

pytest.importorskip("opentelemetry.sdk", reason="the extra otel is not installed")

SECOND = 1_000_000_000
WALL = 1_750_000_000 * SECOND


def sample(session: str, turn: int, send_s: float, **fields: object) -> Sample:
    send = int(send_s * SECOND)
    known: dict[str, object] = {
        "first_token_ns": send + SECOND,
        "last_token_ns": send + 2 * SECOND,
        "prompt_tokens": 1000,
        "cached_tokens": 600,
        "output_tokens": 10,
        "finish": "length",
        "tiers": Tiers(compute=400, external=600),
    }
    return Sample(  # type: ignore[arg-type]
        run="r1",
        arm="off",
        rep=0,
        session=session,
        turn=turn,
        klass=TurnClass.REUSE if turn else TurnClass.FIRST,
        worker="w0",
        endpoint="http://gpu.example:8000",
        request_id=f"r1-{session}-{turn}-1",
        intended_ns=send,
        send_ns=send,
        end_ns=send + 2 * SECOND,
        clock="kernel",
        **{**known, **fields},
    )


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    info = RunInfo(
        run="r1",
        arm="off",
        created="2026-06-01T00:00:00Z",
        endpoint=Endpoint(
            url="http://gpu.example:8000", model="m", server={"engine": "vllm"}, time_scale=20.0
        ),
        plan=Plan(sessions=2, turns=3),
        clocks={"w0": Clock(mono_ns=100 * SECOND, wall_ns=WALL)},
    )
    write_run(tmp_path, info)
    failed = {
        "first_token_ns": None,
        "last_token_ns": None,
        "output_tokens": None,
        "finish": None,
        "tiers": None,
    }
    with SampleWriter(tmp_path / "samples-w0.jsonl") as journal:
        journal.write(sample("s1", 0, 100.0))
        journal.write(sample("s2", 0, 101.0, error=ErrorClass.HTTP_5XX, message="boom", **failed))
        journal.write(sample("s1", 1, 110.0))
    return tmp_path


def spans(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> list[dict[str, object]]:
    assert main(["spans", str(run_dir), "--json"]) == 0
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def test_turns_hang_under_their_session_with_the_conventions_names(
    run_dir: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = spans(run_dir, capsys)
    turns = [span for span in found if span["kind"] == "SpanKind.CLIENT"]
    sessions = {span["context"]["span_id"]: span for span in found if span["kind"] == "SpanKind.INTERNAL"}  # type: ignore[index]
    assert (len(turns), len(sessions)) == (3, 2)
    for turn in turns:
        parent = sessions[turn["parent_id"]]
        assert parent["context"]["trace_id"] == turn["context"]["trace_id"]  # type: ignore[index]
        assert parent["start_time"] <= turn["start_time"] < turn["end_time"] <= parent["end_time"]  # type: ignore[operator]
    first, failed, _ = turns
    assert first["name"] == "chat m"
    attributes = first["attributes"]
    assert isinstance(attributes, dict)
    assert attributes["gen_ai.provider.name"] == "vllm"
    assert attributes["gen_ai.usage.input_tokens"] == 1000
    assert attributes["gen_ai.conversation.id"] == "s1"
    assert attributes["server.address"] == "gpu.example"
    assert attributes["http.request.header.x-request-id"] == ["r1-s1-0-1"]
    assert attributes["loadgen.ttft_s"] == 20.0, "endpoint seconds"
    assert attributes["loadgen.tier.external"] == 600
    assert first["start_time"] == "2025-06-15T15:06:40.000000Z", "wall time of the worker's clock"
    assert failed["status"] == {"status_code": "ERROR", "description": "boom"}
    assert failed["attributes"]["error.type"] == "http_5xx"  # type: ignore[index]
    assert "loadgen.ttft_s" not in failed["attributes"]  # type: ignore[operator]


def test_the_same_run_gives_the_same_ids(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = spans(run_dir, capsys), spans(run_dir, capsys)
    assert [span["context"] for span in first] == [span["context"] for span in second]
    ids = [span["context"]["span_id"] for span in first]  # type: ignore[index]
    assert len(set(ids)) == len(ids)


def test_spans_reach_a_collector(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    bodies: list[bytes] = []

    class Collector(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            bodies.append(self.rfile.read(int(self.headers["Content-Length"])))
            self.send_response(200 if self.path == "/v1/traces" else 404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Collector) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert main(["spans", str(run_dir), "--otlp", f"http://127.0.0.1:{server.server_port}/"]) == 0
        server.shutdown()
    assert "5 spans sent" in capsys.readouterr().out
    request = ExportTraceServiceRequest()
    request.ParseFromString(bodies[0])
    assert sum(len(scope.spans) for resource in request.resource_spans for scope in resource.scope_spans) == 5


def test_a_collector_that_refuses_is_one_sentence(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    class Refuses(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_response(404)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Refuses) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        assert main(["spans", str(run_dir), "--otlp", f"http://127.0.0.1:{server.server_port}"]) == 2
        server.shutdown()
    error = capsys.readouterr().err
    assert error.startswith("loadgen: the collector at")
    assert error.count("\n") == 1


def test_a_worker_without_a_clock_is_named(run_dir: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with SampleWriter(run_dir / "samples-w7.jsonl") as journal:
        journal.write(sample("s9", 0, 1.0).__class__(**{**_fields(sample("s9", 0, 1.0)), "worker": "w7"}))
    assert main(["spans", str(run_dir), "--json"]) == 2
    assert "no clock of worker w7" in capsys.readouterr().err


def _fields(of: Sample) -> dict[str, object]:
    return {name: getattr(of, name) for name in of.__struct_fields__}
