"""LMCache's own counters, as the in-process connector puts them on vLLM's `/metrics` (names read in its source, 0.3 to 0.5)."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Histogram

from loadgen.sim.request import Request

_SECONDS = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0)


class LmcacheMetrics:
    """Bytes are left out on purpose: `lmcache:num_remote_*` do not count what goes through GDS."""

    def __init__(self, registry: CollectorRegistry, model: str) -> None:
        labels = {"model_name": model, "worker_id": "0"}

        def counter(name: str, text: str) -> Counter:
            return Counter(f"lmcache:{name}", text, list(labels), registry=registry).labels(**labels)

        def seconds(name: str, text: str) -> Histogram:
            made = Histogram(f"lmcache:{name}", text, list(labels), buckets=_SECONDS, registry=registry)
            return made.labels(**labels)

        self._lookups = counter("num_lookup_requests", "Lookups.")
        self._lookup_tokens = counter("num_lookup_tokens", "Tokens looked up.")
        self._lookup_hits = counter("num_lookup_hits", "Tokens found by lookups.")
        self._retrieves = counter("num_retrieve_requests", "Retrievals.")
        self._requested = counter("num_requested_tokens", "Tokens requested by retrievals.")
        self._hit = counter("num_hit_tokens", "Tokens retrieved.")
        self._stores = counter("num_store_requests", "Stores.")
        self._stored = counter("num_stored_tokens", "Tokens stored.")
        self._vllm_hit = counter("num_vllm_hit_tokens", "Tokens that vLLM had itself.")
        self._prompt = counter("num_prompt_tokens", "Prompt tokens seen.")
        self._retrieve_s = seconds("time_to_retrieve", "Seconds of a retrieval.")
        self._store_s = seconds("time_to_store", "Seconds of a store.")
        self._told = 0

    def admitted(self, request: Request) -> None:
        self._lookups.inc()
        self._lookup_tokens.inc(request.prompt)
        self._lookup_hits.inc(request.external)
        self._vllm_hit.inc(request.hbm)
        self._prompt.inc(request.prompt)
        if request.external:
            self._retrieves.inc()
            self._requested.inc(request.external)
            self._hit.inc(request.external)
            self._retrieve_s.observe(request.load_s)

    def finished(self, request: Request) -> None:
        if request.store_s:
            self._stores.inc()
            self._store_s.observe(request.store_s)

    def stored(self, tokens: int) -> None:
        """Total of tokens stored so far."""
        self._stored.inc(tokens - self._told)
        self._told = tokens
