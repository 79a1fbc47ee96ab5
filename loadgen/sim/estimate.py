"""A profile's machine in the four figures that a sizing asks for."""

from __future__ import annotations

import msgspec

from loadgen.errors import InputError
from loadgen.sim.cost import Cost
from loadgen.sim.profile import Profile
from loadgen.sizing.plan import Assumptions


def fill(given: Assumptions, profile: Profile) -> Assumptions:
    """Complete what the user left open from the profile's first arm with a tier. Raises InputError when it has none."""
    tiered = [arm for arm in profile.arms.values() if arm.tiers]
    if not tiered:
        raise InputError(f"profile {profile.name} has no arm with an external tier to size")
    tier = tiered[0].tiers[0]
    tokens = given.context
    cost = Cost(profile.compute)
    stored = tokens // tier.chunk * tier.chunk
    tail = cost.prefill(stored, tokens) if stored < tokens else cost.prefill(tokens - 1, tokens)
    whole = {
        "cold_s": cost.host(tokens) + cost.prefill(0, tokens),
        "fixed_s": cost.host(tokens) + tier.read_fixed_s + tail,
        "write_tax_s": tier.store_s_per_token * stored,
        "read_gb_s": tier.read_gb_s,
    }
    return msgspec.structs.replace(
        given, **{key: value for key, value in whole.items() if getattr(given, key) is None}
    )
