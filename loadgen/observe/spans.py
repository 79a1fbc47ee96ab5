"""A run's turns as OpenTelemetry spans, made from its samples after the run: tracing costs the measurement nothing.

One trace a session, a span for the session and under it one a turn, named and attributed by the semantic conventions
for generative AI clients (opentelemetry.io/docs/specs/semconv/gen-ai). Stamps are wall time; a simulated endpoint's
time scale is an attribute of the resource. Ids are hashes of run, session and request, so sending twice makes no
second trace.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, SpanKind, Status, StatusCode, TraceFlags

from loadgen.errors import InputError
from loadgen.measure.journal import read_samples
from loadgen.measure.run import Clock, RunInfo, read_run
from loadgen.measure.sample import Sample
from loadgen.version import describe

_SCOPE = InstrumentationScope("loadgen", describe())


def spans(run_dir: Path) -> Iterator[ReadableSpan]:
    """All spans of a run: turns in the order of the files, then the sessions. Raises InputError when the run has no
    wall clock (it was killed before its first report)."""
    info = read_run(run_dir)
    resource = Resource.create(
        {
            "service.name": "loadgen",
            "service.version": info.versions.get("loadgen", ""),
            "loadgen.run": info.run,
            "loadgen.arm": info.arm,
            "loadgen.rep": info.rep,
            "loadgen.time_scale": info.endpoint.time_scale,
            "loadgen.simulated": info.endpoint.simulated or "",
        }
    )
    sessions: dict[str, tuple[int, int, int]] = {}  # wall start, wall end, turns
    for sample in read_samples(run_dir):
        offset = _offset(info, sample.worker, run_dir)
        yield _turn(info, sample, offset, resource)
        start, end, turns = sessions.get(sample.session, (sample.send_ns + offset, 0, 0))
        sessions[sample.session] = (
            min(start, sample.send_ns + offset),
            max(end, sample.end_ns + offset),
            turns + 1,
        )
    for session, (start, end, turns) in sessions.items():
        yield ReadableSpan(
            name=f"session {session}",
            context=_context(info, session, "session"),
            resource=resource,
            attributes={"gen_ai.conversation.id": session, "loadgen.turns": turns},
            kind=SpanKind.INTERNAL,
            instrumentation_scope=_SCOPE,
            start_time=start,
            end_time=end,
        )


def _offset(info: RunInfo, worker: str, run_dir: Path) -> int:
    """Nanoseconds from a worker's monotonic to wall time."""
    clock: Clock | None = info.clocks.get(worker)
    if (
        clock is None and not info.clocks
    ):  # killed before the end: master and workers of one machine share the clock
        clock = info.start
    if clock is None:
        raise InputError(f"{run_dir}: run.json has no clock of worker {worker}, so its stamps have no date")
    return clock.wall_ns - clock.mono_ns


def _hash(*words: object) -> bytes:
    return hashlib.sha256("\0".join(map(str, words)).encode()).digest()


def _context(info: RunInfo, session: str, *span: object) -> SpanContext:
    return SpanContext(
        trace_id=int.from_bytes(_hash(info.run, session)[:16]),
        span_id=int.from_bytes(_hash(info.run, session, *span)[:8]),
        is_remote=False,
        trace_flags=TraceFlags(TraceFlags.SAMPLED),
    )


def _turn(info: RunInfo, sample: Sample, offset: int, resource: Resource) -> ReadableSpan:
    scale = info.endpoint.time_scale
    url = urlsplit(sample.endpoint)
    attributes: dict[str, Any] = {
        "gen_ai.operation.name": "text_completion" if info.endpoint.api == "completions" else "chat",
        "gen_ai.provider.name": info.endpoint.server.get("engine") or "openai",
        "gen_ai.request.model": info.endpoint.model,
        "gen_ai.request.max_tokens": sample.requested_tokens,
        "gen_ai.usage.input_tokens": sample.prompt_tokens,
        "gen_ai.usage.output_tokens": sample.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": sample.cached_tokens,
        "gen_ai.response.finish_reasons": (sample.finish,) if sample.finish else None,
        "gen_ai.conversation.id": sample.session,
        "server.address": url.hostname,
        "server.port": url.port,
        "http.request.header.x-request-id": (sample.request_id,),
        "error.type": sample.error.value if sample.error is not None else None,
        "loadgen.turn": sample.turn,
        "loadgen.attempt": sample.attempt,
        "loadgen.class": sample.klass.value,
        "loadgen.agent": sample.agent,
        "loadgen.worker": sample.worker,
        "loadgen.expected_reuse": sample.expected_reuse,
    }
    if sample.tiers is not None:
        for tier in ("compute", "hbm", "external", "unknown"):
            attributes[f"loadgen.tier.{tier}"] = getattr(sample.tiers, tier)
    events = []
    if sample.first_token_ns is not None:
        attributes["loadgen.ttft_s"] = (sample.first_token_ns - sample.send_ns) * scale / 1e9
        events.append(Event("first token", timestamp=sample.first_token_ns + offset))
    if sample.last_token_ns is not None:
        events.append(Event("last token", timestamp=sample.last_token_ns + offset))
    return ReadableSpan(
        name=f"{attributes['gen_ai.operation.name']} {info.endpoint.model}",
        context=_context(info, sample.session, sample.turn, sample.attempt),
        parent=_context(info, sample.session, "session"),
        resource=resource,
        attributes={name: value for name, value in attributes.items() if value is not None},
        events=events,
        kind=SpanKind.CLIENT,
        instrumentation_scope=_SCOPE,
        status=Status(StatusCode.ERROR, sample.message or sample.error.value)
        if sample.error is not None
        else Status(),
        start_time=sample.send_ns + offset,
        end_time=sample.end_ns + offset,
    )


def send(found: Iterable[ReadableSpan], url: str, *, batch: int = 512) -> int:
    """Send spans to a collector by OTLP over HTTP and return how many. `url` is the collector's address, to which
    `/v1/traces` is added. Raises InputError when it does not take them."""
    import itertools

    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import SpanExportResult

    exporter = OTLPSpanExporter(
        endpoint=url.rstrip("/").removesuffix("/v1/traces") + "/v1/traces", timeout=10
    )
    sent, rest = 0, iter(found)
    try:
        while part := list(itertools.islice(rest, batch)):
            if exporter.export(part) is not SpanExportResult.SUCCESS:
                raise InputError(
                    f"the collector at {url} did not take the spans ({sent} were sent); is it up, and does it speak OTLP over HTTP?"
                )
            sent += len(part)
    finally:
        exporter.shutdown()  # type: ignore[no-untyped-call]
    return sent
