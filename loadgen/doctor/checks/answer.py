"""What an answer looks like: complete, counted, one token at a time, not held back on its way."""

from __future__ import annotations

from collections.abc import Iterator

from loadgen.doctor.ask import Asked
from loadgen.doctor.finding import Finding, Status
from loadgen.doctor.patient import Patient, text
from loadgen.doctor.server_state import scrape
from loadgen.measure.probes.server import delta

OUTPUT = 64
_TOKENS = 1_200  # several blocks of any size in use, so that a repeat must hit
_PROXY_HEADERS = ("via", "x-cache", "cf-ray", "x-envoy-upstream-service-time", "x-amz-cf-id")
_BURST_LIMIT = 0.2
_HELD_BACK_S = 0.25


def examine(patient: Patient) -> Iterator[Finding]:
    prompt = text(_TOKENS)
    before = scrape(patient.api)
    first = patient.ask(prompt, output_tokens=OUTPUT)
    if first.exchange.status == 400:
        refused = first
        patient.forced = False
        first = patient.ask(prompt, output_tokens=OUTPUT)
        if first.error is None:
            yield _unforced(refused)
    after = scrape(patient.api)
    if first.exchange.usage is None and first.error is not None:
        yield _broken(first)
        return
    yield _shape(first)
    yield _usage(first)
    if patient.forced:
        yield _length(first)
    again = patient.ask(prompt, output_tokens=OUTPUT)
    yield _cached(first, again)
    yield _bursts(first, patient)
    if before is not None and after is not None:
        yield _path(patient, first, delta(before, after).counters)


def _broken(asked: Asked) -> Finding:
    return Finding(
        check="streaming",
        status=Status.FAIL,
        seen=asked.error or "",
        meaning="Every turn of a run would fail like this.",
        remedy="Try a chat completion with curl and read the server's log.",
    )


def _unforced(refused: Asked) -> Finding:
    return Finding(
        check="output length",
        status=Status.WARN,
        seen=f"ignore_eos and min_tokens are refused ({refused.exchange.message})",
        meaning="Answers end where the model ends them: turns differ in length between arms.",
        remedy="Run with --natural-output and compare TTFT alone.",
    )


def _shape(asked: Asked) -> Finding:
    exchange = asked.exchange
    if exchange.error is not None:
        return Finding(
            check="streaming",
            status=Status.FAIL,
            seen=asked.error or "",
            meaning="A turn like this counts as failed.",
            remedy="Look for a proxy that cuts or rewrites streams.",
        )
    tokens = exchange.usage.output_tokens if exchange.usage else None
    seen = f"{exchange.chunks} token events for {tokens} tokens, finish {exchange.finish}"
    if exchange.reused_conn is False and exchange.headers.get("content-encoding"):
        seen += f", content-encoding {exchange.headers['content-encoding']}"
    several = tokens is not None and exchange.chunks < tokens
    return Finding(
        check="streaming",
        status=Status.NOTE if several else Status.OK,
        seen=seen,
        meaning="One event holds several tokens; gaps between events are not gaps between tokens."
        if several
        else "",
        data={"events": exchange.chunks, "output_tokens": tokens},
    )


def _usage(asked: Asked) -> Finding:
    usage = asked.exchange.usage
    if usage is None or usage.prompt_tokens is None or usage.output_tokens is None:
        return Finding(
            check="usage",
            status=Status.FAIL,
            seen="no token counts in the stream",
            meaning="Prompt lengths cannot be checked and TPOT cannot be computed; a run is stamped invalid.",
            remedy="Use a server that honours stream_options.include_usage.",
        )
    return Finding(
        check="usage",
        status=Status.OK,
        seen=f"{usage.prompt_tokens} prompt and {usage.output_tokens} output tokens",
    )


def _length(asked: Asked) -> Finding:
    usage = asked.exchange.usage
    got = usage.output_tokens if usage else None
    if got == OUTPUT and asked.exchange.finish == "length":
        return Finding(check="output length", status=Status.OK, seen=f"{got} tokens as asked")
    return Finding(
        check="output length",
        status=Status.WARN,
        seen=f"{got} tokens instead of {OUTPUT} (finish {asked.exchange.finish})",
        meaning="Turns differ in length between arms, so total time and throughput cannot be compared.",
        remedy="Use a server that honours min_tokens and ignore_eos, or accept --natural-output and compare TTFT alone.",
    )


def _cached(first: Asked, again: Asked) -> Finding:
    reported = again.cached_tokens
    data = {"first": first.cached_tokens, "again": reported}
    if first.cached_tokens:
        return Finding(
            check="cached_tokens",
            status=Status.NOTE,
            seen=f"{first.cached_tokens} of a new prompt's tokens were cached",
            meaning="The template's own beginning is shared by all prompts; a run counts it as expected.",
            data=data,
        )
    if reported is None:
        return Finding(
            check="cached_tokens",
            status=Status.WARN,
            seen="absent for a prompt that was sent twice",
            meaning="That first turns are cold cannot be proven from the answers, and hits are not seen per turn.",
            remedy="Start vLLM with --enable-prompt-tokens-details, SGLang with --enable-cache-report.",
            data=data,
        )
    if reported == 0:
        return Finding(
            check="cached_tokens",
            status=Status.WARN,
            seen="0 for a prompt that was sent twice",
            meaning="Prefix caching is off, or this prompt is below one block.",
            remedy="Without a prefix cache there is nothing for a tier to extend: --enable-prefix-caching.",
            data=data,
        )
    told = "" if first.cached_tokens is not None else "; absent when there is none, so absent means 0 here"
    return Finding(
        check="cached_tokens",
        status=Status.OK,
        seen=f"{reported} of {again.prompt_tokens} on a repeat{told}",
        data=data,
    )


def _bursts(asked: Asked, patient: Patient) -> Finding:
    share = asked.burst_share
    proxies = [name for name in _PROXY_HEADERS if name in asked.exchange.headers]
    data = {"burst_share": share, "proxy_headers": proxies}
    if share is None:
        return Finding(check="buffering", status=Status.SKIP, seen="fewer than two token events")
    through = f" (through {', '.join(proxies)})" if proxies else ""
    seen = f"{share:.0%} of the token events came together with an earlier one{through}"
    if asked.exchange.burst:
        return Finding(
            check="buffering",
            status=Status.FAIL,
            seen=f"all {asked.exchange.chunks} token events came in one read{through}",
            meaning="Something on the way holds the stream back until its end: TTFT would be the time of the whole answer.",
            remedy="Turn off buffering in the proxy (nginx: proxy_buffering off; X-Accel-Buffering: no), or go around it.",
            data=data,
        )
    if share > _BURST_LIMIT:
        simulated = (
            " A simulated endpoint that runs many times faster than real time shows this too."
            if patient.scale > 1
            else ""
        )
        return Finding(
            check="buffering",
            status=Status.WARN,
            seen=seen,
            meaning=f"Tokens are collected on the way (the server's own batching, or a proxy); first tokens may be late.{simulated}",
            remedy="Compare with the server's own address.",
            data=data,
        )
    return Finding(check="buffering", status=Status.OK, seen=seen, data=data)


def _path(patient: Patient, asked: Asked, change: dict[str, float]) -> Finding:
    """Our TTFT beside the server's own for the same request: what lies between is the path and the server's HTTP part."""
    ours, server = patient.ttft_s(asked), change.get("ttft_s")
    if ours is None or server is None or change.get("ttft_n") != 1:
        return Finding(
            check="way to the server",
            status=Status.SKIP,
            seen="the server's own TTFT of this request is not known",
        )
    between = ours - server
    data = {"ttft_s": ours, "server_ttft_s": server}
    seen = f"TTFT {ours * 1e3:.1f} ms here, {server * 1e3:.1f} ms by the server's own clock"
    if between > _HELD_BACK_S + ours / 2:
        return Finding(
            check="way to the server",
            status=Status.WARN,
            seen=seen,
            meaning="Most of the time passes outside the engine: a proxy that collects, a queue in front, or a busy API server.",
            remedy="Measure from the server's own machine, too.",
            data=data,
        )
    return Finding(check="way to the server", status=Status.OK, seen=seen, data=data)
