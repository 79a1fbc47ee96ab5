"""What a server is, as far as it tells, and whether two servers are the same in everything that shapes a TTFT."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

import msgspec

from loadgen.measure.probes.server import ServerCounters

# What each field means for a comparison: shown when it differs between two arms.
MEANING: dict[str, str] = {
    "engine": "another serving engine",
    "version": "another release of the engine: schedulers and kernels differ",
    "model": "another model name",
    "root": "other weights under the same name",
    "max_model_len": "another context limit",
    "engines": "another number of engine replicas (data parallel)",
    "block_size": "hits are counted in other blocks",
    "capacity_tokens": "another KV pool: other contexts stay in GPU memory",
    "cache_dtype": "KV of another width: other bytes a token",
    "prefix_caching": "prefix caching is on in one arm only",
    "hash_algorithm": "keys are made another way: stored KV is not shared",
    "gpu_memory_utilization": "another share of GPU memory for the KV pool",
    "sliding_window": "another attention window: other layers cache",
    "kv_offloading_size": "another size of the native offload tier",
    "kv_offloading_backend": "another native offload backend",
    "connector": "another KV connector",
}
_SILENT = {"kv_offloading_backend"}  # vLLM names a default even where nothing is offloaded


class Difference(NamedTuple):
    field: str
    left: Any
    right: Any
    meaning: str


def fingerprint(
    counters: ServerCounters, models_json: Any = None, version_json: Any = None, model: str | None = None
) -> dict[str, Any]:
    """What `/metrics`, `/v1/models` and `/version` (decoded JSON or its bytes, null where absent) say of a server.

    Only fields that the server tells are in the result, apart from `connector`: a name where its metrics give
    it away, `some` where the prefix cache's external counter moved, `none` where prompts were looked up and it
    did not, else `unknown` (a fresh server has looked up nothing). `model` picks one of several served models.
    """
    entry = _model_entry(_decoded(models_json), model)
    version = _decoded(version_json)
    cache = counters.cache
    facts: dict[str, Any] = {
        "engine": counters.family,
        "version": version.get("version") if isinstance(version, Mapping) else None,
        "model": entry.get("id"),
        "root": entry.get("root"),
        "max_model_len": entry.get("max_model_len"),
        "engines": counters.engines or None,
        "block_size": _number(cache.get("block_size") or cache.get("page_size")),
        "capacity_tokens": counters.capacity_tokens,
        "cache_dtype": cache.get("cache_dtype"),
        "prefix_caching": {"True": True, "False": False}.get(cache.get("enable_prefix_caching", "")),
        "hash_algorithm": cache.get("prefix_caching_hash_algo"),
        "gpu_memory_utilization": _number(cache.get("gpu_memory_utilization")),
        "sliding_window": _number(cache.get("sliding_window")),
        "kv_offloading_size": _number(cache.get("kv_offloading_size")),
        "kv_offloading_backend": cache.get("kv_offloading_backend"),
        "connector": _connector(counters),
        "started_s": counters.gauges.get("started_s"),
    }
    return {name: value for name, value in facts.items() if value is not None}


def differences(
    left: Mapping[str, Any], right: Mapping[str, Any], named: Collection[str] = ()
) -> list[Difference]:
    """Fields in which two fingerprints differ, without those that the experiment names.

    A field that only one server tells counts as a difference: silence is no proof of equality. So does a
    connector that is `unknown` on one side. The process's start time never counts.
    """
    found = []
    for field, meaning in MEANING.items():
        if field in named or left.get(field) == right.get(field):
            continue
        if field in _SILENT and not (left.get("kv_offloading_size") or right.get("kv_offloading_size")):
            continue
        found.append(Difference(field, left.get(field), right.get(field), meaning))
    return found


def _connector(counters: ServerCounters) -> str:
    if counters.signs:
        return "+".join(counters.signs)
    queries, external = counters.counters.get("prefix_queries"), counters.counters.get("external_queries")
    if external:
        return "some"
    return "none" if queries and external is not None else "unknown"


def _model_entry(models: Any, wanted: str | None) -> Mapping[str, Any]:
    data = models.get("data") if isinstance(models, Mapping) else None
    entries = [entry for entry in data if isinstance(entry, Mapping)] if isinstance(data, list) else []
    chosen = [entry for entry in entries if entry.get("id") == wanted] if wanted else entries
    return chosen[0] if chosen else {}


def _decoded(value: Any) -> Any:
    if isinstance(value, (bytes, str)):
        try:
            return msgspec.json.decode(value)
        except msgspec.DecodeError:
            return None
    return value


def _number(text: str | None) -> int | float | None:
    if text is None:
        return None
    try:
        value = float(text)
    except ValueError:
        return None
    return int(value) if value.is_integer() else value
