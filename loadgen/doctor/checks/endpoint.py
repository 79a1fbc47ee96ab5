"""What the endpoint is: model, context length, metrics, who else uses it, how many replicas answer."""

from __future__ import annotations

import time
from collections.abc import Iterator

from loadgen.doctor.finding import Finding, Status
from loadgen.doctor.patient import Patient
from loadgen.doctor.server_state import identify, scrape
from loadgen.errors import LoadgenError

_TIER_COUNTERS = ("compute_tokens", "hbm_tokens", "external_tokens")
_SPLIT_COUNTERS = ("queue_s", "prefill_s", "ttft_n")
_LOOKS, _GAP_S = 6, 0.02


def examine(patient: Patient) -> Iterator[Finding]:
    yield from _identity(patient)
    yield _context(patient)
    yield from _metrics(patient)
    yield from _resets(patient)


def _identity(patient: Patient) -> Iterator[Finding]:
    facts = patient.facts
    what = identify(patient.api, facts.model)
    named = [f"{key} {what[key]}" for key in ("engine", "version", "connector") if key in what]
    yield Finding(
        check="reachable",
        status=Status.OK,
        seen=f"{facts.model} at {patient.api.url}" + (f" ({', '.join(named)})" if named else ""),
        data={"model": facts.model, "url": patient.api.url, "fingerprint": what},
    )
    if facts.simulated:
        yield Finding(
            check="simulated",
            status=Status.NOTE,
            seen=f"simulated endpoint {facts.simulated}, {facts.time_scale:g} times real time",
            meaning="All times below are the profile's numbers in its own seconds, not evidence about a server.",
        )


def _context(patient: Patient) -> Finding:
    limit, wanted = patient.facts.max_model_len, patient.context_tokens
    if limit is None:
        return Finding(
            check="context length",
            status=Status.WARN,
            seen="the endpoint does not tell its context length",
            meaning="Prompts that are too long fail during the run instead of before it.",
            remedy="Compare the model's documentation with your longest prompt.",
        )
    if limit < wanted:
        return Finding(
            check="context length",
            status=Status.FAIL,
            seen=f"{limit:,} tokens, {wanted:,} are wanted",
            meaning="Every prompt of that length is refused with HTTP 400.",
            remedy=f"Start the server with --max-model-len of at least {wanted:,} and the output, or use shorter contexts (--context-tokens).",
            data={"max_model_len": limit},
        )
    return Finding(
        check="context length", status=Status.OK, seen=f"{limit:,} tokens", data={"max_model_len": limit}
    )


def _metrics(patient: Patient) -> Iterator[Finding]:
    page = scrape(patient.api)
    if page is None:
        yield Finding(
            check="metrics",
            status=Status.WARN,
            seen="no /metrics that can be read",
            meaning="Where prompts come from (compute, HBM, external tier) and why a TTFT is what it is cannot be told; only cached_tokens remains.",
            remedy="Give the address of the server itself, not of a gateway; vLLM always has /metrics, SGLang needs --enable-metrics.",
        )
        return
    missing = [name for name in (*_TIER_COUNTERS, *_SPLIT_COUNTERS) if name not in page.counters]
    tiers = not set(missing) & {"hbm_tokens", "external_tokens"}
    yield Finding(
        check="metrics",
        status=Status.OK if not missing else Status.WARN,
        seen=f"{page.family}, {len(page.counters)} of our counters"
        + (f", without {', '.join(missing)}" if missing else ""),
        meaning=""
        if not missing
        else (
            "Tiers are known; the split of a TTFT is not."
            if tiers
            else "The tier of a prompt's tokens is not known."
        ),
        data={"missing": missing},
    )
    capacity = page.capacity_tokens
    if capacity is not None:
        contexts = capacity / patient.context_tokens
        yield Finding(
            check="kv pool",
            status=Status.NOTE,
            seen=f"{capacity:,} tokens: {contexts:.2f} contexts of {patient.context_tokens:,}",
            meaning=f"A sweep over N contexts hits in HBM alone up to N = {int(contexts)} and not at all from N = {int(contexts) + 2} on.",
            data={"capacity_tokens": capacity, "contexts": contexts},
        )
    yield _alone(page.in_flight)
    yield _replicas(patient)


def _alone(in_flight: int | None) -> Finding:
    if in_flight is None:
        return Finding(check="idle", status=Status.SKIP, seen="the metrics do not tell what is in flight")
    if in_flight:
        return Finding(
            check="idle",
            status=Status.FAIL,
            seen=f"{in_flight} requests in flight that are not ours",
            meaning="Somebody else's load is part of every figure, and counters cannot be attributed to our turns.",
            remedy="Measure on a server of your own, or wait until it is idle.",
        )
    return Finding(check="idle", status=Status.OK, seen="nothing in flight")


def _replicas(patient: Patient) -> Finding:
    """Several processes behind one address show in pages of different lives, or in counters that go back."""
    lives, falls, last = set(), 0, None
    for _ in range(_LOOKS):
        page = scrape(patient.api)
        if page is None:
            continue
        lives.add((page.gauges.get("started_s"), page.capacity_tokens))
        if last is not None and any(page.counters.get(k, v) < v for k, v in last.items()):
            falls += 1
        last = page.counters
        time.sleep(_GAP_S)
    if len(lives) > 1 or falls:
        return Finding(
            check="one replica",
            status=Status.FAIL,
            seen=f"{max(len(lives), 2)} different servers answered {_LOOKS} requests for /metrics",
            meaning="Turns of one session reach replicas that have not seen it, so hits are lost at random, and counters are one replica's.",
            remedy="Use one replica, or name each one directly.",
        )
    return Finding(check="one replica", status=Status.OK, seen=f"{_LOOKS} pages of one process")


def _resets(patient: Patient) -> Iterator[Finding]:
    """Whether the routes exist, asked with a method that they refuse: a reset would empty somebody's cache."""
    try:
        status, _, _ = patient.api.request("GET", "/reset_prefix_cache")
    except LoadgenError as error:
        yield Finding(check="reset", status=Status.SKIP, seen=str(error))
        return
    if status == 405:
        seen, remedy = "/reset_prefix_cache is there", ""
    else:
        seen = f"no /reset_prefix_cache (HTTP {status})"
        remedy = "VLLM_SERVER_DEV_MODE=1 brings it, on a server that nobody else reaches."
    yield Finding(
        check="reset",
        status=Status.NOTE,
        seen=seen,
        meaning="A run is made cold by its nonce in any case; a reset empties HBM alone, and external tiers keep what they have.",
        remedy=remedy,
        data={"reset_prefix_cache": status == 405},
    )
