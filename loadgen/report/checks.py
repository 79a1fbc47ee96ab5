"""Applies `validity` to a run: which reasons hold, with this run's numbers. All limits stand at the top."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from loadgen.measure import metrics
from loadgen.measure.run import RunInfo
from loadgen.measure.sample import ErrorClass
from loadgen.report import words
from loadgen.report.client import Client
from loadgen.report.columns import ABSENT, ERRORS, Bools, Turns
from loadgen.report.figures import figure
from loadgen.report.validity import Code, Reason, from_incident, reason

ERROR_LIMIT = 0.01  # share of turns; run.json's policy may say otherwise
COALESCED_LIMIT = 0.01  # share of turns (and one turn at least) …
COALESCED_EFFECT = 0.05  # … in which the loop's lag at that moment may be more than this share of the TTFT
ON_TIME = 0.5  # of the time between two tokens: a loop less late than this merges none that were sent apart
LOOP_LAG_LIMIT_MS = 50.0  # wall time, p99 of the worst interval
SEND_LATE_MS = 50.0  # wall time; a turn later than this …
SEND_LATE_LIMIT = 0.01  # … may be at most this share of turns (and one turn at least)
ALIKE_TOKENS = (
    256  # sessions under one nonce may share the first words of their own texts, which is not planned
)
SATURATED = 0.90  # of a core
DRIFT_LIMIT = 0.001  # of a prompt's target, and at least 1 token


def planned_gap(turns: Turns, info: RunInfo) -> tuple[int, int]:
    """(sessions cut short or never started, turns never sent) against the plan."""
    pairs = np.unique(turns.session.astype(np.int64) << 32 | turns.turn)
    sent = np.bincount(pairs >> 32, minlength=len(turns.sessions))
    by_session = dict(zip(turns.sessions, sent.tolist(), strict=True))
    if not info.plan.turns_by_session:
        missing = max(0, info.plan.turns - int(pairs.size))
        return (1 if missing else 0), missing
    gaps = [max(0, planned - by_session.get(name, 0)) for name, planned in info.plan.turns_by_session.items()]
    return sum(gap > 0 for gap in gaps), sum(gaps)


def superseded(turns: Turns) -> Bools:
    """Turns that an interruption cut and that were sent again when the run was resumed, [N]."""
    cut: Bools = np.asarray(turns.error == ERRORS.index(ErrorClass.CANCELLED))
    if not cut.any():
        return cut
    place = turns.session.astype(np.int64) << 32 | turns.turn
    last: dict[int, int] = {}
    for key, attempt in zip(place.tolist(), turns.attempt.tolist(), strict=True):
        last[key] = max(last.get(key, 0), attempt)
    return np.asarray(cut & (turns.attempt < np.asarray([last[key] for key in place.tolist()])))


def ended_as_planned(info: RunInfo) -> bool:
    """Whether the run was to end after a time or a number of turns; a sweep that ends so is cut all the same."""
    return info.schedule.get("stopped_by") in ("time", "turns") and info.schedule.get("kind") != "sweep"


def reasons(turns: Turns, info: RunInfo, client: Client) -> list[Reason]:
    """Every reason that holds, each code once, in the order of the checks."""
    found: dict[str, Reason] = {}
    for one in (*_run(turns, info), *_client(turns, info, client), *_server(turns, info)):
        found.setdefault(one.code, one)
    return list(found.values())


def _run(turns: Turns, info: RunInfo) -> Iterator[Reason]:
    for incident in info.incidents:
        yield from_incident(incident.code, incident.detail)
    if info.state == "running":
        yield reason(Code.INTERRUPTED, "Its end was never recorded: it was killed, or is still under way.")
    elif info.state != "finished":
        yield reason(Code.INTERRUPTED)
    if not len(turns):
        yield reason(Code.NO_TURNS)
        return
    sessions, unsent = planned_gap(turns, info)
    if unsent and not ended_as_planned(info):
        yield reason(
            Code.SESSIONS_CUT, f"{unsent} of {info.plan.turns} turns were never sent (sessions: {sessions})."
        )
    bad = ~turns.ok & ~superseded(turns)
    failed = int(np.count_nonzero(bad))
    limit = float(info.policy.get("error_limit", ERROR_LIMIT))
    if failed > limit * len(turns):
        by_class = np.bincount(turns.error[bad], minlength=len(ERRORS))
        worst = ", ".join(
            f"{ERRORS[code]} {by_class[code]}"
            for code in np.argsort(-by_class, kind="stable")[:3]
            if by_class[code]
        )
        yield reason(
            Code.ERROR_LIMIT,
            f"{failed} of {len(turns)} turns failed ({worst}); the limit is {limit:.3g} of them.",
        )


def _client(turns: Turns, info: RunInfo, client: Client) -> Iterator[Reason]:
    if not client.observed:
        yield reason(Code.CLIENT_UNOBSERVED)
    silent = sorted(set(turns.workers) - set(client.rows)) if client.observed else []
    if missing := sorted({*client.without_final(), *silent}):
        yield reason(Code.MISSING_FINAL, f"Workers: {', '.join(missing)}.")
    if busy := client.saturated(SATURATED):
        yield reason(Code.CLIENT_SATURATED, f"Above {words.share(SATURATED)} of a core: {', '.join(busy)}.")
    lag = client.loop_lag_us()
    if lag.p99 > LOOP_LAG_LIMIT_MS * 1000:
        yield reason(
            Code.LOOP_LAG, f"p99 {lag.p99 / 1000:.1f} ms, at most {LOOP_LAG_LIMIT_MS:.0f} ms is accepted."
        )
    if not len(turns):
        return
    late = int(np.count_nonzero(turns.client_delay_ns > SEND_LATE_MS * 1e6))
    if late > max(1, SEND_LATE_LIMIT * len(turns)):
        worst = float(turns.client_delay_ns.max()) / 1e6
        yield reason(
            Code.SEND_LATE,
            f"{late} of {len(turns)} turns more than {SEND_LATE_MS:.0f} ms late, worst {worst:.0f} ms.",
        )
    yield from _coalesced(turns, info, client)


def _coalesced(turns: Turns, info: RunInfo, client: Client) -> Iterator[Reason]:
    """First tokens read together with later ones, where the loop was late enough to spoil the figure.

    Such a stamp is late by at most the time the loop was away: where that is nothing beside the TTFT, it does no harm.
    And a late reader merges only what comes closer together than it is late: where the loop was away for less than the
    time between two tokens, the server or a proxy sent several at once, and the stamp is that of their packet.
    """
    if not turns.coalesced.any():
        return
    tpot_us, has_tpot = figure(turns, metrics.TPOT, 1.0)
    usual_us = float(np.median(tpot_us[has_tpot])) if has_tpot.any() else 0.0
    gap_ns = np.where(has_tpot, tpot_us, usual_us) * 1000.0
    material = 0
    worst_ms, worst_share = 0.0, 0.0
    for code, worker in enumerate(turns.workers):
        rows = np.flatnonzero(turns.coalesced & (turns.worker == code) & (turns.first_token_ns != ABSENT))
        clock = info.clocks.get(worker)
        mono_ns = turns.first_token_ns[rows] - (clock.wall_ns - clock.mono_ns if clock else 0)
        bound = client.lag_bound_ns(worker, mono_ns)
        share = bound / np.maximum(turns.first_token_ns[rows] - turns.send_ns[rows], 1)
        late = (share > COALESCED_EFFECT) & (bound > ON_TIME * gap_ns[rows])
        if late.any():
            material += int(np.count_nonzero(late))
            worst_ms = max(worst_ms, float(bound[late].max()) / 1e6)
            worst_share = max(worst_share, float(share[late].max()))
    if material > max(1, COALESCED_LIMIT * len(turns)):
        by = (
            f" by {worst_ms:.1f} ms, {words.share(worst_share)}"
            if np.isfinite(worst_ms)
            else "; the loop was not watched then"
        )
        yield reason(Code.COALESCED, f"{material} of {len(turns)} turns, at worst{by}.")


def _server(turns: Turns, info: RunInfo) -> Iterator[Reason]:
    ok = turns.ok
    without = int(
        np.count_nonzero(
            ok & ~turns.aborted & ((turns.prompt_tokens == ABSENT) | (turns.output_tokens == ABSENT))
        )
    )
    if without:
        yield reason(Code.USAGE_MISSING, f"{without} of {len(turns)} turns.")
    checked = ok & (turns.prompt_tokens != ABSENT) & (turns.target_tokens != ABSENT)
    drift = np.where(checked, np.abs(turns.prompt_tokens - turns.target_tokens), 0)
    off = drift > np.maximum(1, DRIFT_LIMIT * turns.target_tokens)
    if off.any():
        worst = int(np.argmax(drift))
        yield reason(
            Code.PROMPT_DRIFT,
            f"{int(np.count_nonzero(off))} of {len(turns)} turns, worst: {int(turns.prompt_tokens[worst]):,} tokens "
            f"where {int(turns.target_tokens[worst]):,} were planned.",
        )
    yield from _cold(turns, info)


def _cold(turns: Turns, info: RunInfo) -> Iterator[Reason]:
    """First turns must not hit more than the template's own prefix (`policy.cold_limit_tokens`) or what sessions under the
    same nonce sent before them (the expected reuse)."""
    if info.policy.get("nonce", "unknown") in (None, False, "none", "off"):
        return  # the run never claimed to be cold
    first = turns.of_class("first") & turns.ok
    if (told := first & ~turns.aborted).any():
        first = told  # a turn that was cut on purpose has no usage, and the others are the proof
    if info.policy.get("nonce") == "run" and first.any():
        # Sessions share what their texts share, and are meant to. An earlier run's cache would serve every prompt of the
        # first wave, so one of it that found nothing is the proof.
        wave = np.flatnonzero(first & (turns.send_ns < turns.end_ns[first].min()))
        first[:] = False
        first[wave[np.argmin(turns.cached_tokens[wave])]] = True
    limit = info.policy.get("cold_limit_tokens")
    allowed = np.maximum(turns.expected_reuse, int(limit) if limit is not None else 0)
    if info.policy.get("nonce") in ("family", "group"):
        allowed = allowed + ALIKE_TOKENS
    unknown = int(np.count_nonzero(first & (turns.cached_tokens == ABSENT)))
    warm = first & (turns.cached_tokens > allowed)
    if warm.any():
        most = int(turns.cached_tokens[warm].max())
        yield reason(
            Code.COLD_NOT_PROVEN,
            f"{int(np.count_nonzero(warm))} first turns hit the cache, with up to {most:,} tokens.",
        )
    elif unknown:
        yield reason(Code.COLD_NOT_PROVEN, f"`cached_tokens` was absent on {unknown} first turns.")
