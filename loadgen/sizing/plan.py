"""The figures of a sizing, each with the formula that gave it.

GB are 10^9 bytes, GiB 2^30. Formulas are those of the KV physics in docs/sizing.md; what cannot be known from
the arguments is null with the reason instead of a guess (a cold TTFT is measured, never derived from FLOP).
"""

from __future__ import annotations

import math
from collections.abc import Callable

import msgspec

from loadgen.errors import InputError
from loadgen.sizing.shape import Shape

GIB = 2**30


class Assumptions(msgspec.Struct, kw_only=True, frozen=True):
    """What a sizing starts from. Times in seconds of one request that is alone."""

    context: int  # tokens
    tp: int = 1
    dtype: str = "bf16"
    hybrid: bool = True
    pool_gb_per_gpu: float | None = None  # KV pool of the arm without offload
    sessions: int | None = None
    staging_gib_per_gpu: float | None = None  # none: twice one load
    read_gb_s: float | None = None  # payload of the whole link
    cold_s: float | None = None  # TTFT of a whole context, nothing cached
    fixed_s: float | None = None  # TTFT of a whole context loaded, without the transfer
    write_tax_s: float | None = None  # how much longer a first turn takes because it stores
    new_contexts_per_day: float | None = None
    chunk: int = 256


class Figure(msgspec.Struct, frozen=True):
    """One result. `formula` holds the numbers; without a value it says what is missing."""

    key: str
    title: str
    value: float | None
    unit: str
    formula: str


def check(given: Assumptions) -> None:
    """Raise InputError for arguments that make no sense."""
    if given.context < 1 or given.tp < 1 or given.chunk < 1:
        raise InputError("--context, --tp and --chunk must be at least 1")
    for name in ("pool_gb_per_gpu", "read_gb_s", "cold_s"):
        value = getattr(given, name)
        if value is not None and not (math.isfinite(value) and value > 0):
            raise InputError(f"--{name.replace('_', '-')} must be a number above 0, not {value}")
    for name in ("staging_gib_per_gpu", "fixed_s", "write_tax_s", "new_contexts_per_day"):
        value = getattr(given, name)
        if value is not None and not (math.isfinite(value) and value >= 0):
            raise InputError(f"--{name.replace('_', '-')} must not be negative, not {value}")
    if given.sessions is not None and given.sessions < 1:
        raise InputError("--sessions must be at least 1")
    if given.cold_s is not None and given.fixed_s is not None and given.fixed_s >= given.cold_s:
        raise InputError(
            f"--fixed-s {given.fixed_s:g} is not below --cold-s {given.cold_s:g}: loading can never win"
        )


def plan(shape: Shape, given: Assumptions) -> list[Figure]:
    """All figures, in the order of the printed table."""
    check(given)
    figures: list[Figure] = []

    def add(
        key: str, title: str, unit: str, needs: dict[str, float | None], make: Callable[[], tuple[float, str]]
    ) -> float | None:
        absent = [name for name, value in needs.items() if value is None]
        value, formula = (None, f"needs {', '.join(absent)}") if absent else make()
        figures.append(Figure(key, title, value, unit, formula))
        return value

    per_token = shape.bytes_per_token(given.dtype, given.hybrid)
    ranks = shape.ranks(given.tp)
    copies = given.tp / ranks
    total = shape.context_bytes(given.context, given.dtype, given.hybrid)
    add("kv_bytes_per_token", "KV per token", "B", {}, lambda: (per_token, _per_token_formula(shape, given)))
    context_gb = add(
        "context_gb",
        "KV per context",
        "GB",
        {},
        lambda: (total / 1e9, _context_formula(shape, given, per_token)),
    )
    assert context_gb is not None
    per_rank = total / ranks
    add(
        "context_gib_per_gpu",
        "KV per context and GPU",
        "GiB",
        {},
        lambda: (per_rank / GIB, f"{total:,} B / {ranks} rank(s) without copies"),
    )
    add(
        "chunk_mib_per_gpu", "object in the store", "MiB", {},
        lambda: (given.chunk * per_token / ranks / 2**20, f"{given.chunk} tokens x {per_token:,} B / {ranks}"),
    )  # fmt: skip

    pool = {"--pool-gb-per-gpu": given.pool_gb_per_gpu}
    resident = add(
        "contexts_in_hbm", "contexts that stay in HBM", "", pool,
        lambda: (_pool(given) * ranks / total, f"{given.pool_gb_per_gpu:g} GB x {given.tp} / ({context_gb:.2f} GB x {copies:g} cop{'y' if copies == 1 else 'ies'})"),
    )  # fmt: skip
    add(
        "hits_vanish_at",
        "working set without a hit",
        "contexts",
        pool,
        lambda: (math.ceil((resident or 0) + 1), f"round robin: N >= {resident:.2f} + 1"),
    )
    staging = given.staging_gib_per_gpu
    if staging is None:
        staging = math.ceil(2 * per_rank / GIB)
        staging_formula = f"2 x {per_rank / GIB:.2f} GiB: one load while the store before it drains"
    else:
        staging_formula = (
            f"given; one load needs {per_rank / GIB:.2f} GiB, {staging / (per_rank / GIB):.2f} fit"
        )
    add("staging_gib_per_gpu", "staging buffer a GPU", "GiB", {}, lambda: (staging, staging_formula))
    left = add(
        "contexts_in_hbm_with_staging", "contexts in HBM beside it", "", pool,
        lambda: (max(0.0, _pool(given) - staging * GIB) * ranks / total, f"({given.pool_gb_per_gpu:g} GB - {staging * GIB / 1e9:.2f} GB) x {given.tp} / {context_gb:.2f} GB"),
    )  # fmt: skip
    add(
        "sessions_hit_share", "round-robin hits of the sessions", "", {**pool, "--sessions": given.sessions},
        lambda: _hit_share(resident or 0, given.sessions or 1),
    )  # fmt: skip
    add(
        "sessions_hit_share_with_staging", "the same beside the buffer", "", {**pool, "--sessions": given.sessions},
        lambda: _hit_share(left or 0, given.sessions or 1),
    )  # fmt: skip

    load = add(
        "load_s", "time to load a context", "s", {"--read-gb-s": given.read_gb_s},
        lambda: (context_gb / (given.read_gb_s or 1), f"{context_gb:.2f} GB / {given.read_gb_s:g} GB/s"),
    )  # fmt: skip
    times = {"--cold-s": given.cold_s, "--fixed-s": given.fixed_s}
    cold, fixed = given.cold_s or 0.0, given.fixed_s or 0.0
    warm = add(
        "warm_s",
        "TTFT of a loaded context",
        "s",
        {"--read-gb-s": given.read_gb_s, "--fixed-s": given.fixed_s},
        lambda: (fixed + (load or 0), f"{fixed:g} + {load:.2f}"),
    )
    add(
        "breakeven_gb_s", "bandwidth below which recomputing wins", "GB/s", times,
        lambda: (context_gb / (cold - fixed), f"{context_gb:.2f} GB / ({cold:g} - {fixed:g} s)"),
    )  # fmt: skip
    loaded = {**times, "--read-gb-s": given.read_gb_s}
    gain = cold - (warm or 0)
    taxed = {**loaded, "--write-tax-s": given.write_tax_s}
    tax = given.write_tax_s or 0.0
    if gain > 0:
        add(
            "breakeven_turns",
            "turns of a session from which it pays",
            "",
            taxed,
            lambda: (1 + tax / gain, f"1 + {tax:g} / ({cold:g} - {warm:.2f})"),
        )
        add(
            "breakeven_revisit", "probability of a revisit from which it pays", "", taxed,
            lambda: (min(1.0, tax / gain), f"{tax:g} / ({cold:g} - {warm:.2f})"),
        )  # fmt: skip
    else:
        for key, title in (
            ("breakeven_turns", "turns of a session from which it pays"),
            ("breakeven_revisit", "probability of a revisit from which it pays"),
        ):
            figures.append(Figure(key, title, None, "", "never: loading takes as long as recomputing"))
    add(
        "concurrent_loads", "loads at once before recomputing wins", "", loaded,
        lambda: ((cold - fixed) / (load or 1), f"({cold:g} - {fixed:g}) / {load:.2f}; recomputations queue as well"),
    )  # fmt: skip
    add(
        "storage_gb_per_day", "growth of the store", "GB/day", {"--new-contexts-per-day": given.new_contexts_per_day},
        lambda: ((given.new_contexts_per_day or 0) * context_gb, f"{given.new_contexts_per_day:g} x {context_gb:.2f} GB; a GDS store never evicts"),
    )  # fmt: skip
    return figures


def _pool(given: Assumptions) -> float:
    return (given.pool_gb_per_gpu or 0) * 1e9


def round_robin_share(resident: float, sessions: int) -> float:
    """Share of a context that hits when `sessions` contexts take turns and `resident` of them fit.

    vLLM evicts the least recently used and frees a request's tail first: all hit up to floor(C), what the others
    leave of one context below C + 1, none beyond.
    """
    if sessions <= math.floor(resident):
        return 1.0
    return max(0.0, resident - (sessions - 1))


def _hit_share(resident: float, sessions: int) -> tuple[float, str]:
    if sessions <= math.floor(resident):
        formula = f"N = {sessions} <= {resident:.2f}"
    elif sessions >= resident + 1:
        formula = f"N = {sessions} >= {resident:.2f} + 1"
    else:
        formula = f"{resident:.2f} - ({sessions} - 1)"
    return round_robin_share(resident, sessions), formula


def _per_token_formula(shape: Shape, given: Assumptions) -> str:
    width = {"bf16": 2, "fp16": 2, "fp8": 1, "fp32": 4}[given.dtype]
    layers = shape.layers if given.hybrid else shape.layers + shape.sliding_layers
    if shape.latent:
        text = f"{layers} layers x {shape.latent} (latent + rope) x {width} B"
    else:
        text = f"2 x {layers} layers x {shape.kv_heads} KV heads x {shape.head_dim} x {width} B"
    if shape.indexer_bytes:
        text += f" + {layers} x {shape.indexer_bytes} B (indexer)"
    if shape.constant_layers:
        text += f"; {shape.constant_layers} layers keep a constant state"
    return text


def _context_formula(shape: Shape, given: Assumptions, per_token: int) -> str:
    text = f"{given.context:,} x {per_token:,} B"
    if shape.sliding_layers and given.hybrid:
        kept = min(given.context, shape.window)
        text += f" + {kept} x {shape.sliding_layers * shape.layer_bytes(given.dtype):,} B (windows)"
    return text
