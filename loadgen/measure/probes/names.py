"""Which series of which server carries what: one table, read in the source or on a real page of each release.

| server | how the names were established |
|---|---|
| vLLM 0.20, 0.33 | read in its source |
| vLLM 0.26, 0.32 | pages saved from running servers |
| SGLang 0.5 | read in its documentation of production metrics |
| llama.cpp of 2026-11 | a page read from a running server |
| LMCache 0.3 to 0.5, in process (`lmcache:`) | read in its source |
| LMCache 0.5.6, a server of its own (`lmcache_mp_`) | a page saved from a running server |

Each quantity lists its aliases, newest first. The first alias that a page has is used, never a mixture.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, NamedTuple

Fold = Literal["sum", "max"]


class Alias(NamedTuple):
    """A sample name and the labels that a series must carry (`has`) or must not (`lacks`) to count.

    `lacks` also needs the label to be present: an unlabelled total is not a part of itself.
    """

    name: str
    has: tuple[tuple[str, str], ...] = ()
    lacks: tuple[tuple[str, str], ...] = ()

    def matches(self, labels: Mapping[str, str]) -> bool:
        return all(labels.get(k) == v for k, v in self.has) and all(
            k in labels and labels[k] != v for k, v in self.lacks
        )


class Quantity(NamedTuple):
    """What one field of `ServerCounters` is read from. Series of several engines are added, or the largest taken."""

    aliases: tuple[Alias, ...]
    fold: Fold = "sum"


def _by_source(source: str) -> Alias:
    return Alias("vllm:prompt_tokens_by_source_total", (("source", source),))


def _histogram(*names: str) -> tuple[Quantity, Quantity]:
    sums = tuple(Alias(f"{name}_sum") for name in names)
    counts = tuple(Alias(f"{name}_count") for name in names)
    return Quantity(sums), Quantity(counts)


_QUEUE = _histogram("vllm:request_queue_time_seconds", "sglang:queue_time_seconds")
_PREFILL = _histogram("vllm:request_prefill_time_seconds")
_TTFT = _histogram("vllm:time_to_first_token_seconds", "sglang:time_to_first_token_seconds")
_DECODE = _histogram("vllm:request_decode_time_seconds")

# Cumulative quantities: a difference of two pages means something.
COUNTERS: dict[str, Quantity] = {
    "prompt_tokens": Quantity((Alias("vllm:prompt_tokens_total"), Alias("sglang:prompt_tokens_total"))),
    "generation_tokens": Quantity(
        (
            Alias("vllm:generation_tokens_total"),
            Alias("sglang:generation_tokens_total"),
            Alias("llamacpp:tokens_predicted_total"),
        )
    ),
    "compute_tokens": Quantity((_by_source("local_compute"), Alias("llamacpp:prompt_tokens_total"))),
    "hbm_tokens": Quantity(
        (
            _by_source("local_cache_hit"),
            Alias("vllm:prefix_cache_hits_total"),
            Alias("vllm:gpu_prefix_cache_hits_total"),
            Alias("sglang:cached_tokens_total", has=(("cache_source", "device"),)),
        )
    ),
    "external_tokens": Quantity(
        (
            _by_source("external_kv_transfer"),
            Alias("vllm:external_prefix_cache_hits_total"),
            Alias("sglang:cached_tokens_total", lacks=(("cache_source", "device"),)),
        )
    ),
    "cached_tokens": Quantity(
        (
            Alias("vllm:prompt_tokens_cached_total"),
            Alias("sglang:cached_tokens_total"),
            Alias("llamacpp:prompt_tokens_cached_total"),
        )
    ),
    "prefix_queries": Quantity(
        (Alias("vllm:prefix_cache_queries_total"), Alias("vllm:gpu_prefix_cache_queries_total"))
    ),
    "external_queries": Quantity((Alias("vllm:external_prefix_cache_queries_total"),)),
    "preemptions": Quantity(
        (Alias("vllm:num_preemptions_total"), Alias("sglang:num_retracted_requests_total"))
    ),
    "finished": Quantity((Alias("vllm:request_success_total"), Alias("sglang:num_requests_total"))),
    "queue_s": _QUEUE[0],
    "queue_n": _QUEUE[1],
    "prefill_s": _PREFILL[0],
    "prefill_n": _PREFILL[1],
    "ttft_s": _TTFT[0],
    "ttft_n": _TTFT[1],
    "decode_s": _DECODE[0],
    "decode_n": _DECODE[1],
    # The connector's own account. In-process LMCache counts no bytes of its GDS backend: absent or 0 is not "none".
    "load_bytes": Quantity(
        (
            Alias("vllm:kv_offload_load_bytes_total"),
            Alias("vllm:kv_offload_total_bytes_total", has=(("transfer_type", "CPU_to_GPU"),)),
            Alias("lmcache:num_remote_read_bytes_total"),
        )
    ),
    "load_s": Quantity(
        (
            Alias("vllm:kv_offload_load_time_total"),
            Alias("vllm:kv_offload_total_time_total", has=(("transfer_type", "CPU_to_GPU"),)),
            Alias("lmcache:time_to_retrieve_sum"),
            Alias("sglang:load_back_duration_seconds_sum"),
        )
    ),
    "store_bytes": Quantity(
        (
            Alias("vllm:kv_offload_store_bytes_total"),
            Alias("vllm:kv_offload_total_bytes_total", has=(("transfer_type", "GPU_to_CPU"),)),
            Alias("lmcache:num_remote_write_bytes_total"),
        )
    ),
    "store_s": Quantity(
        (
            Alias("vllm:kv_offload_store_time_total"),
            Alias("vllm:kv_offload_total_time_total", has=(("transfer_type", "GPU_to_CPU"),)),
            Alias("lmcache:time_to_store_sum"),
        )
    ),
    "lookup_tokens": Quantity(
        (Alias("lmcache_mp_lookup_requested_tokens_total"), Alias("lmcache:num_requested_tokens_total"))
    ),
    "lookup_hit_tokens": Quantity(
        (Alias("lmcache_mp_lookup_hit_tokens_total"), Alias("lmcache:num_hit_tokens_total"))
    ),
    "lookup_hit_l1_tokens": Quantity((Alias("lmcache_mp_lookup_hit_l1_tokens_total"),)),
    "lookup_hit_l2_tokens": Quantity((Alias("lmcache_mp_lookup_hit_l2_tokens_total"),)),
    # What is still on its way to storage is submitted - completed.
    "stores_submitted": Quantity((Alias("lmcache_mp_l2_store_submitted_requests_total"),)),
    "stores_completed": Quantity((Alias("lmcache_mp_l2_store_completed_requests_total"),)),
    "stored_tokens": Quantity(
        (Alias("lmcache:num_stored_tokens_total"), Alias("sglang:backuped_tokens_total"))
    ),
}

# Momentary quantities: only the value counts.
GAUGES: dict[str, Quantity] = {
    "running": Quantity(
        (
            Alias("vllm:num_requests_running"),
            Alias("sglang:num_running_reqs"),
            Alias("llamacpp:requests_processing"),
        )
    ),
    "waiting": Quantity(
        (
            Alias("vllm:num_requests_waiting"),
            Alias("sglang:num_queue_reqs"),
            Alias("llamacpp:requests_deferred"),
        )
    ),
    "deferred": Quantity((Alias("vllm:num_requests_waiting_by_reason", has=(("reason", "deferred"),)),)),
    "kv_usage": Quantity(
        (
            Alias("vllm:kv_cache_usage_perc"),
            Alias("vllm:gpu_cache_usage_perc"),
            Alias("sglang:token_usage"),
        ),
        fold="max",
    ),
    "max_total_tokens": Quantity((Alias("sglang:max_total_num_tokens"),)),
    "tier_bytes": Quantity((Alias("lmcache_mp_l2_usage_bytes"), Alias("lmcache:remote_cache_usage"))),
    "memory_tier_bytes": Quantity(
        (Alias("lmcache_mp_l1_memory_usage_bytes"), Alias("lmcache:local_cache_usage"))
    ),
    "started_s": Quantity((Alias("process_start_time_seconds"),), fold="max"),
}

CACHE_CONFIG = ("vllm:cache_config_info", "sglang:cache_config_info")

WANTED: frozenset[str] = frozenset(
    [alias.name for table in (COUNTERS, GAUGES) for quantity in table.values() for alias in quantity.aliases]
    + list(CACHE_CONFIG)
)

# Name prefixes that only a certain connector brings along. LMCache in process shares the page through a
# folder that survives restarts, so its names prove that it ran there once, not that it runs now.
CONNECTOR_SIGNS: dict[str, str] = {
    "\nvllm:lmcache_mp_": "LMCacheMPConnector",
    "\nlmcache:": "LMCacheConnectorV1",
    "\nvllm:kv_offload_": "OffloadingConnector",
    "\nvllm:simple_kv_offload_": "SimpleCPUOffloadConnector",
    "\nvllm:nixl_": "NixlConnector",
    "\nvllm:mooncake_store_": "MooncakeStoreConnector",
    "\nsglang:hicache_": "HiCache",
}
