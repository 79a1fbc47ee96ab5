"""What LMCache's log says about each request: how much of its prompt HBM had, and how much was to be loaded.

Two of its lines matter (read in LMCache 0.3 to 0.5; level INFO). The scheduler writes one when it admits a request:
`Reqid: R, Total tokens L, Inference Engine computed tokens: h, LMCache hit tokens: m, need to load: n`, where n = m - h
(one less on a full hit, below 0 where HBM reaches further). Every rank writes one when it has loaded:
`[req_id=R] Retrieved k out of q required tokens`; q may exceed n by a part of a chunk that HBM holds too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from loadgen.measure.sample import Tiers

_LOOKUP = re.compile(
    rb"Reqid: (\S+), Total tokens (\d+), Inference Engine computed tokens: (\d+), "
    rb"LMCache hit tokens: \d+, need to load: (-?\d+)"
)
_RETRIEVED = re.compile(rb"\[req_id=(\S+)\] Retrieved (\d+) out of (\d+) required tokens")
_PREFIX = re.compile(r"(?:chatcmpl|cmpl|resp|msg)[-_]")
_RANDOM = re.compile(r"-[0-9a-f]{8}$")
_CHOICE = re.compile(r"-\d+$")


class Lookup(msgspec.Struct):
    """One request of the log, in tokens. `missed`: found at the lookup and not there when the slowest rank loaded."""

    total: int
    hbm: int
    load: int
    missed: int = 0

    @property
    def tiers(self) -> Tiers:
        external = max(0, self.load - self.missed)
        return Tiers(compute=self.total - self.hbm - external, hbm=self.hbm, external=external)


def read_log(lines: Iterable[bytes]) -> dict[str, Lookup]:
    """Requests by the engine's id.

    A request that waits is looked up again and the last line counts; one that was preempted comes back longer, by its
    own output, and that line does not.
    """
    found: dict[str, Lookup] = {}
    for line in lines:
        if b"Reqid: " in line:
            if (match := _LOOKUP.search(line)) is None:
                continue
            name = match[1].decode(errors="replace")
            total, hbm, load = (int(match[k]) for k in (2, 3, 4))
            known = found.get(name)
            if hbm <= total and (known is None or known.total == total):
                found[name] = Lookup(total, hbm, max(0, min(load, total - hbm)))
        elif b"] Retrieved " in line and (match := _RETRIEVED.search(line)) is not None:
            looked = found.get(match[1].decode(errors="replace"))
            if looked is not None:
                looked.missed = max(looked.missed, int(match[3]) - int(match[2]))
    return found


def client_ids(engine_id: str) -> list[str]:
    """What `X-Request-Id` may have been, most likely first.

    vLLM puts `chatcmpl-` or `cmpl-` before it, after it the number of the choice (completions alone) and eight random
    digits (unless VLLM_DISABLE_REQUEST_ID_RANDOMIZATION is set).
    """
    prefix = _PREFIX.match(engine_id)
    bare = engine_id[prefix.end() :] if prefix else engine_id
    fixed = _RANDOM.sub("", bare)
    found = [fixed, bare]
    if prefix and prefix[0] == "cmpl-":
        found = [_CHOICE.sub("", fixed), _CHOICE.sub("", bare), *found]
    return list(dict.fromkeys(found))
