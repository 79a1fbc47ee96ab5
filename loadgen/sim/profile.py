"""A simulated machine: what it costs to compute, to load and to store, and the arms that are compared.

Profiles are TOML; those that ship stand in `profiles/`. Units are in the names: `_s` seconds, `_gb_s` 10^9
bytes a second, tokens and bytes otherwise.
"""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Literal

import msgspec

from loadgen.errors import InputError

_SHIPPED = Path(__file__).parent / "profiles"


class Compute(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """Time to first token of L tokens of which h were cached: host + prefill_s_per_token (L - h)
    + prefill_s_per_token2 (L^2 - h^2). One decode step of b requests with k KV tokens in all:
    decode_s + decode_s_per_request b + decode_s_per_kv_token k."""

    host_s: float  # parsing, network, detokenizing: once a request
    host_s_per_token: float  # tokenizing and hashing the prompt, cached or not
    prefill_s_per_token: float
    prefill_s_per_token2: float
    decode_s: float
    decode_s_per_request: float = 0.0
    decode_s_per_kv_token: float = 0.0
    step_s: float = 0.0  # fixed cost of every scheduler step that prefills


class Scheduler(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    max_num_batched_tokens: int = 8192
    max_num_seqs: int = 1024
    block_size: int = 16


class Tier(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """An external tier behind the connector."""

    name: str
    source: Literal["host", "disk", "p2p", "external_unspecified"] = "external_unspecified"
    chunk: int = 256  # tokens; only whole chunks are stored and found
    capacity_bytes: float | None = None  # none: it never fills
    evict: Literal["tail", "head"] = "tail"
    read_gb_s: float
    read_fixed_s: float = 0.0  # once for every request that loads from this tier
    fail_every: int = 0  # each n-th load fails after its time was spent; 0: none does
    store_s_per_token: float = 0.0  # blocks the engine: copy out of HBM, Python, file creation
    write_gb_s: float | None = None  # rate at which written bytes drain; none: never the limit
    write_buffer_bytes: float = (
        0.0  # bytes that are taken at once (page cache) before writes wait for the drain
    )
    write_rest_bytes: float = 0.0  # of these, what stays undrained while nobody writes (background threshold)


class Arm(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    pool_tokens: int  # KV pool in HBM
    tiers: list[Tier] = []  # fastest first
    connector: Literal["sync", "async"] = "sync"  # sync: a load stops the whole engine (LMCacheConnectorV1)
    external_key: Literal["tag", "salt"] = "tag"  # what besides the tokens is in the external key
    staging_bytes: float | None = (
        None  # buffer, all ranks together, that must hold one load whole; a larger hit is cut
    )
    on_load_failure: Literal["recompute", "fail"] = "recompute"


class Profile(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    name: str
    description: str
    model: str
    max_model_len: int
    kv_bytes_per_token: int
    compute: Compute
    arms: dict[str, Arm]
    scheduler: Scheduler = Scheduler()

    def arm(self, name: str) -> Arm:
        try:
            return self.arms[name]
        except KeyError:
            raise InputError(
                f"profile {self.name} has no arm {name!r}; it has {', '.join(self.arms)}"
            ) from None


def shipped() -> list[str]:
    """Names of the profiles that ship."""
    return sorted(path.stem for path in _SHIPPED.glob("*.toml"))


def load(argument: str) -> Profile:
    """A shipped profile by name, or a TOML file by path. Raises InputError that names what is wrong."""
    path = _SHIPPED / f"{argument}.toml" if argument in shipped() else Path(argument)
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        raise InputError(
            f"no profile {argument!r}: give a TOML file or one of {', '.join(shipped())}"
        ) from None
    try:
        profile = msgspec.convert(tomllib.loads(text), type=Profile)
    except (tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InputError(f"profile {path}: {error}") from None
    check(profile)
    return profile


def load_tier(argument: str) -> Tier:
    """An external tier from a TOML file of its fields. Raises InputError that names what is wrong."""
    try:
        return msgspec.convert(tomllib.loads(Path(argument).read_text(encoding="utf-8")), type=Tier)
    except OSError as error:
        raise InputError(
            f"cannot read tier {argument}: {error.strerror}; give a TOML file or `none`"
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        raise InputError(f"tier {argument}: {error}") from None


def check(profile: Profile) -> None:
    """Raise InputError for numbers that no machine can have."""
    block = profile.scheduler.block_size
    if block < 1 or profile.scheduler.max_num_batched_tokens < 1 or profile.scheduler.max_num_seqs < 1:
        raise InputError(
            f"profile {profile.name}: block_size, max_num_batched_tokens and max_num_seqs must be at least 1"
        )
    if profile.compute.decode_s <= 0 or any(value < 0 for value in msgspec.structs.astuple(profile.compute)):
        raise InputError(
            f"profile {profile.name}: times in [compute] must not be negative, and decode_s must be above 0"
        )
    if profile.kv_bytes_per_token < 1 or not profile.arms:
        raise InputError(
            f"profile {profile.name}: needs kv_bytes_per_token of at least 1 and one arm or more"
        )
    for name, arm in profile.arms.items():
        if arm.pool_tokens < block:
            raise InputError(
                f"profile {profile.name}, arm {name}: pool_tokens must hold at least one block of {block}"
            )
        for tier in arm.tiers:
            if (
                tier.read_gb_s <= 0
                or tier.chunk % block
                or tier.chunk < block
                or (tier.write_gb_s is not None and tier.write_gb_s <= 0)
            ):
                raise InputError(
                    f"profile {profile.name}, arm {name}, tier {tier.name}: rates must be above 0 and chunk a multiple of {block}"
                )
