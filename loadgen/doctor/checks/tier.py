"""Is there a tier behind HBM, does it work, and what do a salt, a tag and `skip_save` mean to this connector?

Connectors differ: LMCache in process does not see `cache_salt` (a new one misses HBM and hits storage), vLLM's own
offloading and LMCache's server do (a new one is a full recompute). So each meaning is tried, in an order in which
every step rests on the one before, and the result is what calibration may use.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

from loadgen.doctor.ask import Asked
from loadgen.doctor.finding import Finding, Status
from loadgen.doctor.patient import Patient, salt, text
from loadgen.doctor.server_state import drain, reset, scrape
from loadgen.measure.probes.server import delta, tiers
from loadgen.measure.sample import Tiers

TAG: dict[str, object] = {"kv_transfer_params": {"lmcache.tag.loadgen": "doctor"}}
SKIP_SAVE: dict[str, object] = {"kv_transfer_params": {"lmcache.skip_save": True}}
_WAITS_S = (0.5, 2.0, 6.0)  # stores may end after the answer, and not every connector tells
_DRAIN_S = 60.0


@dataclass(frozen=True)
class Shot:
    """One probe: the answer, where its prompt came from (null where the counters do not tell), and its TTFT."""

    asked: Asked
    source: Tiers | None
    ttft_s: float | None

    @property
    def cached(self) -> int:
        """Tokens that were not computed; 0 where the endpoint says nothing (vLLM 0.20 omits a zero)."""
        if self.source is not None:
            return self.source.hbm + self.source.external + self.source.unknown
        return self.asked.cached_tokens or 0

    @property
    def cold(self) -> bool:
        """At most a template's preamble was cached."""
        return self.cached * 8 < (self.asked.prompt_tokens or 0)

    @property
    def words(self) -> str:
        ttft = "-" if self.ttft_s is None else f"{self.ttft_s:.3f} s"
        if self.source is None:
            return f"{ttft}, {self.asked.cached_tokens} cached"
        return f"{ttft}, {self.source.hbm:,} from HBM, {self.source.external:,} external, {self.source.compute:,} computed"


@dataclass
class Controls:
    """What this connector was seen to honour; null: not known."""

    alive: bool | None = None
    salt_keeps_tier: bool | None = None  # a new salt misses HBM and hits the tier
    tag_recomputes: bool | None = None
    skip_save: bool | None = None


def shoot(patient: Patient, prompt: str, extra: dict[str, object] | None = None) -> Shot:
    """Ask once, with the counters read before and after."""
    before = scrape(patient.api)
    asked = patient.ask(prompt, extra=extra)
    source = None
    if before is not None and asked.prompt_tokens is not None:
        for _ in range(3):
            after = scrape(patient.api)
            source = (
                None
                if after is None
                else tiers(delta(before, after), asked.prompt_tokens, asked.cached_tokens)
            )
            if source is not None:
                break
            time.sleep(0.05)  # the page may be older than the answer
    return Shot(asked, source, patient.ttft_s(asked))


def quiet(patient: Patient, wait_s: float = 0.0) -> None:
    """Let stores end: as long as the metrics say so, else `wait_s` of the endpoint's seconds."""
    told, _ = drain(patient.api, _DRAIN_S, patient.store)
    if not told:
        time.sleep(wait_s / patient.scale)


def examine(patient: Patient, found: Controls) -> Iterator[Finding]:
    """Findings, and `found` filled in for the calibration."""
    prompt = text(patient.probe_tokens)
    first_salt = salt()
    cold = shoot(patient, prompt, {"cache_salt": first_salt})
    if cold.asked.error is not None:
        yield Finding(
            check="tier",
            status=Status.SKIP,
            seen=cold.asked.error,
            meaning="The endpoint refuses cache_salt or the prompt; whether a tier is there cannot be probed.",
        )
        return
    again = shoot(patient, prompt, {"cache_salt": first_salt})
    yield _hbm(cold, again)
    salted = _salted(patient, prompt)
    if salted.cold:
        yield from _behind_hbm(patient, prompt, first_salt, cold, found)
    elif salted.source is None or salted.source.unknown:
        yield Finding(
            check="tier",
            status=Status.SKIP,
            seen=f"a new cache_salt: {salted.words}",
            meaning="It hits, but nothing tells where: a tier that does not see the salt, or an HBM that ignores it.",
            remedy="Name an address whose /metrics tell the sources, and on which nothing else runs.",
        )
    elif not salted.source.external:
        yield Finding(
            check="cache_salt",
            status=Status.NOTE,
            seen=f"a new cache_salt still hits HBM: {salted.words}",
            meaning="This server ignores cache_salt, as it would any unknown field.",
            data={"ignored": True},
        )
        yield from _behind_hbm(patient, prompt, first_salt, cold, found)
    else:
        found.alive = found.salt_keeps_tier = True
        how = "a new cache_salt misses HBM and hits the tier (the connector does not see the salt)"
        yield _alive(cold, salted, how)
        yield from _tag(patient, prompt, found)
    if found.alive:
        yield from _skip_save(patient, found)


def _hbm(cold: Shot, again: Shot) -> Finding:
    if not cold.cold:
        return Finding(
            check="cold",
            status=Status.WARN,
            seen=f"a prompt that nobody sent before: {cold.words}",
            meaning="Something is shared that should not be: the counters are somebody else's, or prompts are answered by a cache in front.",
            remedy="Measure on a server of your own.",
        )
    if again.cold:
        return Finding(
            check="hbm",
            status=Status.WARN,
            seen=f"cold {cold.words}; the same again {again.words}",
            meaning="Even HBM does not hit: prefix caching is off, or the pool is smaller than this prompt.",
            remedy="--enable-prefix-caching; or a smaller --probe-tokens.",
        )
    return Finding(check="hbm", status=Status.OK, seen=f"cold {cold.words}; the same again {again.words}")


def _salted(patient: Patient, prompt: str) -> Shot:
    """A new salt, tried again while stores may still be on their way."""
    for wait in _WAITS_S:
        quiet(patient, wait)
        shot = shoot(patient, prompt, {"cache_salt": salt()})
        if not shot.cold:
            break
    return shot


def _alive(cold: Shot, hit: Shot, how: str) -> Finding:
    faster = cold.ttft_s / hit.ttft_s if cold.ttft_s and hit.ttft_s else None
    seen = f"{hit.words}: {how}" + (f"; cold takes {faster:.1f} times as long" if faster else "")
    slow = faster is not None and faster < 1
    return Finding(
        check="tier",
        status=Status.WARN if slow else Status.OK,
        seen=seen,
        meaning="At this length a load takes longer than computing; longer prompts may tip it."
        if slow
        else "The tier stores and loads.",
        remedy="Look at the link and the tier's settings (probe-host), and probe a longer prompt (--probe-tokens)."
        if slow
        else "",
        data={
            "cold_s": cold.ttft_s,
            "external_s": hit.ttft_s,
            "external_tokens": hit.source.external if hit.source else None,
        },
    )


def _behind_hbm(
    patient: Patient, prompt: str, first_salt: str, cold: Shot, found: Controls
) -> Iterator[Finding]:
    """A new salt does not show a tier: there is none, or its keys hold the salt. Empty HBM and use the old salt."""
    emptied, how = _empty(patient)
    if not emptied:
        yield Finding(
            check="tier",
            status=Status.NOTE,
            seen="a new cache_salt never reaches a tier",
            meaning="Either nothing lies behind HBM, or its keys hold the salt (vLLM's own offloading, LMCache's server).",
            remedy=f"HBM must be emptied to tell: /reset_prefix_cache ({how}), or --evict, which fills the pool with other prompts.",
        )
        return
    quiet(patient, _WAITS_S[0])
    behind = shoot(patient, prompt, {"cache_salt": first_salt})
    if behind.cold:
        found.alive = False
        yield Finding(
            check="tier",
            status=Status.NOTE,
            seen=f"after HBM was emptied ({how}): {behind.words}",
            meaning="No tier answers behind HBM. In an arm without offload that is right; in an arm with it, it is broken.",
            remedy="In the offload arm: read the server's log for the connector, its capacity and its errors.",
        )
        return
    if behind.source is not None and not behind.source.external:
        yield Finding(
            check="tier",
            status=Status.WARN,
            seen=f"after «{how}»: {behind.words}",
            meaning="HBM was not emptied although the server said so; whether a tier is there cannot be told.",
            remedy="--evict fills the pool with other prompts instead.",
        )
        return
    found.alive, found.salt_keeps_tier = True, False
    yield _alive(cold, behind, f"after HBM was emptied ({how}); a new cache_salt does not reach it")


def _empty(patient: Patient) -> tuple[bool, str]:
    """Empty HBM: by the server's own reset, else by filling it where that is allowed."""
    emptied, how = reset(patient.api)
    return _fill(patient) if not emptied and patient.evict else (emptied, how)


def _fill(patient: Patient) -> tuple[bool, str]:
    """Push everything out of HBM with prompts that nobody sent before."""
    page = scrape(patient.api)
    capacity = page.capacity_tokens if page else None
    if capacity is None:
        return False, "the size of the KV pool is not known"
    largest = min(capacity, patient.facts.max_model_len or capacity) * 3 // 4
    left = capacity + largest
    while left > 0:
        asked = patient.ask(text(min(largest, left)), extra=SKIP_SAVE)
        if asked.error is not None or not asked.prompt_tokens:
            return False, f"a filling prompt failed: {asked.error}"
        left -= asked.prompt_tokens
    return True, f"the pool of {capacity:,} tokens was filled with other prompts"


def _tag(patient: Patient, prompt: str, found: Controls) -> Iterator[Finding]:
    tagged = shoot(patient, prompt, {"cache_salt": salt(), **TAG})
    if tagged.asked.error is not None:
        yield Finding(check="tag", status=Status.SKIP, seen=tagged.asked.error)
        return
    found.tag_recomputes = tagged.cold
    yield Finding(
        check="tag",
        status=Status.NOTE,
        seen=f"new salt and a new lmcache.tag: {tagged.words}",
        meaning="A tag forces a recompute without a restart."
        if tagged.cold
        else "This connector ignores lmcache.tag; only a new prompt is cold.",
        data={"recomputes": tagged.cold},
    )


def _skip_save(patient: Patient, found: Controls) -> Iterator[Finding]:
    """A prompt that must not be stored, looked for in the tier afterwards."""
    prompt, mine = text(patient.probe_tokens), salt()
    first = shoot(patient, prompt, {"cache_salt": mine, **SKIP_SAVE})
    if first.asked.error is not None:
        yield Finding(check="skip_save", status=Status.SKIP, seen=first.asked.error)
        return
    quiet(patient, _WAITS_S[1])
    if found.salt_keeps_tier:
        again = shoot(patient, prompt, {"cache_salt": salt()})
    else:
        _empty(patient)
        again = shoot(patient, prompt, {"cache_salt": mine})
    found.skip_save = again.cold
    yield Finding(
        check="skip_save",
        status=Status.NOTE,
        seen=f"sent with skip_save {first.words}; looked for in the tier {again.words}",
        meaning="skip_save is honoured: a cold TTFT without the write can be had."
        if again.cold
        else "skip_save is ignored: every cold turn is also a write.",
        data={"honoured": again.cold, "cold_without_write_s": first.ttft_s if again.cold else None},
    )
