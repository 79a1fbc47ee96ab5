"""`/metrics` under vLLM's names; times are in simulated seconds. Names that start with `loadgen_sim_` are ours."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import HistogramMetricFamily
from prometheus_client.registry import Collector

from loadgen.sim.connector import ExternalTier
from loadgen.sim.driver import LATE_S
from loadgen.sim.http.lmcache import LmcacheMetrics
from loadgen.sim.profile import Profile
from loadgen.sim.request import Request, Step

_TTFT = (
    0.001,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1,
    2.5,
    5,
    7.5,
    10,
    20,
    40,
    80,
    160,
    640,
    2560,
)
_LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_GAPS = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
_COUNTS = tuple(mantissa * 10**power for power in range(6) for mantissa in (1, 2, 5))
_LATE = (0.0001, 0.00025, 0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.5)


class Tally(Collector):
    """A histogram for the hot path: no locks, and many equal values at once."""

    def __init__(self, name: str, text: str, buckets: tuple[float, ...], labels: dict[str, str]) -> None:
        self._name = name
        self._text = text
        self._bounds = buckets
        self._labels = labels
        self._counts = [0] * (len(buckets) + 1)
        self._sum = 0.0

    def add(self, value: float, times: int = 1) -> None:
        self._counts[bisect_left(self._bounds, value)] += times
        self._sum += value * times

    def collect(self) -> Iterator[HistogramMetricFamily]:
        family = HistogramMetricFamily(self._name, self._text, labels=list(self._labels))
        bounds = [*(repr(float(bound)) for bound in self._bounds), "+Inf"]
        family.add_metric(
            list(self._labels.values()), list(zip(bounds, accumulate(self._counts), strict=True)), self._sum
        )
        yield family


class Metrics:
    """Counters of one simulated server; the driver's observer."""

    def __init__(self, profile: Profile, arm: str, blocks: int) -> None:
        self.registry = CollectorRegistry()
        self._labels = {"model_name": profile.model, "engine": "0"}
        self.running = self._gauge(
            "vllm:num_requests_running", "Number of requests in model execution batches."
        )
        self.waiting = self._gauge("vllm:num_requests_waiting", "Number of requests waiting to be processed.")
        self._by_reason = Gauge(
            "vllm:num_requests_waiting_by_reason",
            "Waiting requests by reason.",
            [*self._labels, "reason"],
            registry=self.registry,
        )
        self.capacity = self._by_reason.labels(**self._labels, reason="capacity")
        self.deferred = self._by_reason.labels(**self._labels, reason="deferred")
        self.usage = self._gauge("vllm:kv_cache_usage_perc", "KV-cache usage. 1 means 100 percent usage.")
        self.queries = self._counter("vllm:prefix_cache_queries", "Prefix cache queries, in tokens.")
        self.hits = self._counter("vllm:prefix_cache_hits", "Prefix cache hits, in tokens.")
        self.external_queries = self._counter(
            "vllm:external_prefix_cache_queries", "External cache queries, in tokens."
        )
        self.external_hits = self._counter(
            "vllm:external_prefix_cache_hits", "External cache hits, in tokens."
        )
        self.preemptions = self._counter("vllm:num_preemptions", "Cumulative number of preemptions.")
        self.prompt = self._counter("vllm:prompt_tokens", "Number of prefill tokens processed.")
        self.cached = self._counter("vllm:prompt_tokens_cached", "Cached prompt tokens, local and external.")
        self.generation = self._counter("vllm:generation_tokens", "Number of generation tokens processed.")
        self.by_source = self._labelled(
            "vllm:prompt_tokens_by_source",
            "source",
            ("local_compute", "local_cache_hit", "external_kv_transfer"),
        )
        self.cached_by_source = self._labelled(
            "vllm:prompt_tokens_cached_by_source",
            "source",
            ("device", "host", "p2p", "disk", "external_unspecified"),
        )
        self.success = self._labelled(
            "vllm:request_success", "finished_reason", ("stop", "length", "abort", "error", "repetition")
        )
        self.iteration = self._histogram("vllm:iteration_tokens_total", "Tokens per engine step.", _COUNTS)
        self.prompt_sizes = self._histogram(
            "vllm:request_prompt_tokens", "Prefill tokens of a request.", _COUNTS
        )
        self.answer_sizes = self._histogram(
            "vllm:request_generation_tokens", "Generation tokens of a request.", _COUNTS
        )
        self.computed = self._histogram(
            "vllm:request_prefill_kv_computed_tokens", "New KV tokens computed.", _COUNTS
        )
        self.ttft = self._histogram("vllm:time_to_first_token_seconds", "Time to first token.", _TTFT)
        self._kv_bytes = profile.kv_bytes_per_token
        described = profile.arm(arm)
        in_process = described.tiers and described.external_key == "tag"
        self._lmcache = LmcacheMetrics(self.registry, profile.model) if in_process else None
        self._stepped_s = 0.0
        self.gap = Tally("vllm:inter_token_latency_seconds", "Inter-token latency.", _GAPS, self._labels)
        self.registry.register(self.gap)
        self.tpot = self._histogram(
            "vllm:request_time_per_output_token_seconds", "Time per output token.", _GAPS
        )
        self.latency = self._histogram(
            "vllm:e2e_request_latency_seconds", "End to end request latency.", _LATENCY
        )
        self.queue = self._histogram("vllm:request_queue_time_seconds", "Time in WAITING phase.", _LATENCY)
        self.inference = self._histogram(
            "vllm:request_inference_time_seconds", "Time in RUNNING phase.", _LATENCY
        )
        self.prefill = self._histogram(
            "vllm:request_prefill_time_seconds", "Time in PREFILL phase.", _LATENCY
        )
        self.decode = self._histogram("vllm:request_decode_time_seconds", "Time in DECODE phase.", _LATENCY)
        self._info(profile, arm, blocks)
        ours = self.registry
        self.tokens = Counter("loadgen_sim_tokens", "Tokens sent.", registry=ours)
        self.late_tokens = Counter(
            "loadgen_sim_late_tokens",
            f"Tokens sent over {LATE_S} s (wall) after their deadline.",
            registry=ours,
        )
        self.lateness = Tally(
            "loadgen_sim_delivery_error_seconds",
            "Wall time from a token's deadline until it was handed to the kernel.",
            _LATE,
            {},
        )
        ours.register(self.lateness)
        self._read = Counter(
            "loadgen_sim_tier_read_bytes", "Bytes loaded from an external tier.", ["tier"], registry=ours
        )
        self._written = Counter(
            "loadgen_sim_tier_written_bytes", "Bytes stored in an external tier.", ["tier"], registry=ours
        )
        self._stored = Gauge(
            "loadgen_sim_tier_tokens", "Tokens in an external tier.", ["tier"], registry=ours
        )
        self._told: dict[tuple[Counter, str], int] = {}
        self._preempted = 0
        self.late_requests = Counter(
            "loadgen_sim_late_requests",
            "Requests whose own handling outlasted the modelled one.",
            registry=ours,
        )

    def add_preemptions(self, total: int) -> None:
        self.preemptions.inc(total - self._preempted)
        self._preempted = total

    def external(self, tiers: Sequence[ExternalTier]) -> None:
        """Bring the counters of the external tiers up to date."""
        if self._lmcache is not None:
            self._lmcache.stored(tiers[0].written_bytes // self._kv_bytes)
        for tier in tiers:
            for family, total in ((self._read, tier.read_bytes), (self._written, tier.written_bytes)):
                counter = family.labels(tier=tier.name)
                counter.inc(total - self._told.get((family, tier.name), 0))
                self._told[family, tier.name] = total
            self._stored.labels(tier=tier.name).set(tier.store.used * tier.tier.chunk)

    def text(self) -> bytes:
        return generate_latest(self.registry)

    # -- events

    def stepped(self, step: Step, late_s: list[float]) -> None:
        sent = len(late_s)
        if step.prompt_tokens or sent:
            self.iteration.observe(step.prompt_tokens + sent)
        if not sent:
            return
        self.tokens.inc(sent)
        self.generation.inc(sent)
        if step.decoders:
            # all of them got their last token at the end of the step before
            self.gap.add(step.end_s - self._stepped_s, len(step.decoders))
        self._stepped_s = step.end_s
        for late in late_s:
            self.lateness.add(late if late > 0 else 0.0)
        self.late_tokens.inc(sum(late > LATE_S for late in late_s))

    def admitted(self, request: Request, tiered: bool) -> None:
        self.queries.inc(request.prompt)
        self.hits.inc(request.hbm)
        if tiered:
            self.external_queries.inc(request.prompt - request.hbm)
            self.external_hits.inc(request.external)
        if self._lmcache is not None:
            self._lmcache.admitted(request)

    def first_token(self, request: Request, arrived_s: float) -> None:
        self.prompt.inc(request.prompt)
        self.cached.inc(request.cached)
        self.by_source["local_compute"].inc(request.prompt - request.cached)
        self.by_source["local_cache_hit"].inc(request.hbm)
        self.by_source["external_kv_transfer"].inc(request.external)
        self.cached_by_source["device"].inc(request.hbm)
        for source, tokens in request.sources.items():
            self.cached_by_source[source].inc(tokens)
        self.ttft.observe(request.first_token_s - arrived_s)

    def finished(self, request: Request, arrived_s: float, reason: str) -> None:
        self.success["stop" if reason == "tool_calls" else reason].inc()
        if self._lmcache is not None:
            self._lmcache.finished(request)
        self.prompt_sizes.observe(request.prompt)
        self.answer_sizes.observe(request.emitted)
        self.computed.observe(request.prompt - request.cached)
        decode = request.finish_s - request.first_token_s
        self.latency.observe(request.finish_s - arrived_s)
        self.queue.observe(request.queued_s)
        self.prefill.observe(request.first_token_s - request.scheduled_s)
        self.decode.observe(decode)
        self.inference.observe(request.finish_s - request.scheduled_s)
        if request.emitted > 1:
            self.tpot.observe(decode / (request.emitted - 1))

    # -- making

    def _gauge(self, name: str, text: str) -> Gauge:
        return Gauge(name, text, list(self._labels), registry=self.registry).labels(**self._labels)

    def _counter(self, name: str, text: str) -> Counter:
        return Counter(name, text, list(self._labels), registry=self.registry).labels(**self._labels)

    def _histogram(self, name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
        made = Histogram(name, text, list(self._labels), buckets=buckets, registry=self.registry)
        return made.labels(**self._labels)

    def _labelled(self, name: str, label: str, values: tuple[str, ...]) -> dict[str, Counter]:
        family = Counter(name, f"{name}, by {label}.", [*self._labels, label], registry=self.registry)
        return {value: family.labels(**self._labels, **{label: value}) for value in values}

    def _info(self, profile: Profile, arm: str, blocks: int) -> None:
        block = profile.scheduler.block_size
        facts = {
            "block_size": block, "cache_dtype": "auto", "enable_prefix_caching": True, "num_gpu_blocks": blocks,
            "kv_cache_size_tokens": blocks * block, "gpu_memory_utilization": 0.92, "num_cpu_blocks": None,
            "kv_offloading_size": None, "prefix_caching_hash_algo": "sha256", "sliding_window": None,
            "user_specified_block_size": False, "engine": "0",
        }  # fmt: skip
        info = Gauge(
            "vllm:cache_config_info",
            "Information of the LLMEngine CacheConfig",
            list(facts),
            registry=self.registry,
        )
        info.labels(**{key: str(value) for key, value in facts.items()}).set(1)
        simulated = Gauge(
            "loadgen_sim_info",
            "Marks every figure here as simulated.",
            ["profile", "arm"],
            registry=self.registry,
        )
        simulated.labels(profile=profile.name, arm=arm).set(1)
