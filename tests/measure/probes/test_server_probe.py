"""The server probe against pages cut from real servers, and against pages that nobody should trust."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from loadgen.measure.probes import names
from loadgen.measure.probes.exposition import Series, read_series, render, series_key
from loadgen.measure.probes.server import ServerCounters, delta, from_series, parse, tiers
from loadgen.measure.sample import Tiers

PAGES = Path(__file__).parent / "pages"


def page(name: str) -> str:
    return (PAGES / f"{name}.txt").read_text()


def after(before: ServerCounters, **added: float) -> ServerCounters:
    """`before` with some canonical counters risen."""
    risen = {**before.counters, **{k: before.counters[k] + v for k, v in added.items()}}
    return ServerCounters(
        counters=risen,
        gauges=before.gauges,
        cache=before.cache,
        engines=before.engines,
        capacity_tokens=before.capacity_tokens,
        signs=before.signs,
        series=before.series,
    )


def test_llama_cpp_tells_computed_and_cached_and_no_tier() -> None:
    text = """# TYPE llamacpp:prompt_tokens_total counter
llamacpp:prompt_tokens_total 3413
# TYPE llamacpp:prompt_tokens_cached_total counter
llamacpp:prompt_tokens_cached_total 5512
# TYPE llamacpp:tokens_predicted_total counter
llamacpp:tokens_predicted_total 139
# TYPE llamacpp:requests_processing gauge
llamacpp:requests_processing 2
# TYPE llamacpp:requests_deferred gauge
llamacpp:requests_deferred 1
"""
    c = parse(text)
    assert (c.family, c.in_flight) == ("llamacpp", 3)
    assert c.counters == {"compute_tokens": 3413, "cached_tokens": 5512, "generation_tokens": 139}


def test_vllm_026_with_lmcache_in_process() -> None:
    c = parse(page("vllm-0.26-lmcache"))
    assert c.family == "vllm"
    # three rounds of 3 x 140,000: one cold, two of 216,768 local and 202,560 external each
    assert c.counters["prompt_tokens"] == 9 * 140_000
    assert c.counters["hbm_tokens"] == 2 * 216_768
    assert c.counters["external_tokens"] == 2 * 202_560
    assert c.counters["compute_tokens"] == 420_000 + 2 * 672
    assert c.counters["generation_tokens"] == 18
    assert c.counters["finished"] == 9  # all reasons of finishing added up
    assert c.counters["prefill_n"] == 9
    assert c.counters["prefill_s"] == pytest.approx(37.966, abs=0.001)
    assert c.counters["queue_s"] < 0.001
    assert c.counters["preemptions"] == 0
    assert c.gauges["kv_usage"] == 0
    assert c.capacity_tokens == 352_288
    assert c.cache["block_size"] == "16"
    assert c.in_flight == 0


def test_vllm_032_with_the_multi_process_connector() -> None:
    c = parse(page("vllm-0.32-lmcache-mp"))
    assert c.counters["compute_tokens"] + c.counters["hbm_tokens"] + c.counters["external_tokens"] == 922_542
    assert c.counters["cached_tokens"] == 145_664 + 454_271
    assert c.capacity_tokens == 166_400
    assert c.signs == ("LMCacheMPConnector",)


def test_lmcache_server() -> None:
    c = parse(page("lmcache-0.5.6-mp"))
    assert c.family == "lmcache"
    assert c.counters["lookup_tokens"] == 920_064
    assert c.counters["lookup_hit_tokens"] == c.counters["lookup_hit_l1_tokens"] == 599_808
    assert c.counters["stores_submitted"] == c.counters["stores_completed"] == 42
    assert c.gauges["tier_bytes"] == 81_985_536


def test_vllm_020_native_offload() -> None:
    c = parse(page("vllm-0.20-native"))
    # by source wins over the hit counters, which count a request again at every failed admission
    assert (c.counters["hbm_tokens"], c.counters["external_tokens"]) == (90_000, 98_000)
    assert (c.counters["load_bytes"], c.counters["store_bytes"]) == (1e9, 2e9)
    assert (c.counters["load_s"], c.counters["store_s"]) == (0.125, 0.25)
    assert c.capacity_tokens == 16_000  # blocks x size: this release has no kv_cache_size_tokens
    assert c.signs == ("OffloadingConnector",)
    assert c.in_flight == 3


def test_sglang() -> None:
    c = parse(page("sglang-0.5"))
    assert c.family == "sglang"
    assert (c.counters["hbm_tokens"], c.counters["external_tokens"]) == (4000, 3000)
    assert c.counters["cached_tokens"] == 7000
    assert "compute_tokens" not in c.counters
    assert c.capacity_tokens == 100_000
    assert c.counters["queue_s"] == pytest.approx(0.07)


@pytest.mark.parametrize("name", sorted(p.stem for p in PAGES.glob("*.txt")))
def test_picking_lines_finds_what_parsing_all_finds(name: str) -> None:
    text = page(name)
    whole = {
        (s.name, tuple(sorted(s.labels.items()))): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
        if s.name in names.WANTED
    }
    picked = {(s.name, tuple(sorted(s.labels.items()))): s.value for s in read_series(text, names.WANTED)}
    assert picked == whole
    assert picked


@pytest.mark.parametrize("name", sorted(p.stem for p in PAGES.glob("*.txt")))
def test_a_stored_page_reads_as_the_scraped_one(name: str) -> None:
    c = parse(page(name))
    again = from_series(c.series)
    assert again.counters == c.counters
    assert again.gauges == c.gauges
    assert again.capacity_tokens == c.capacity_tokens
    assert again.series == c.series


@given(st.text())
def test_labels_survive_being_stored(value: str) -> None:
    odd = Series("vllm:prompt_tokens_total", {"model_name": value}, 2.0)
    (back,) = read_series(render({series_key(odd): odd.value}), [odd.name])
    assert back == odd


def test_several_engines_add_up_and_the_fullest_pool_counts() -> None:
    text = (
        'vllm:prompt_tokens_total{engine="0"} 10\nvllm:prompt_tokens_total{engine="1"} 5\n'
        'vllm:kv_cache_usage_perc{engine="0"} 0.2\nvllm:kv_cache_usage_perc{engine="1"} 0.9\n'
        'vllm:cache_config_info{engine="0",num_gpu_blocks="100",block_size="16"} 1\n'
        'vllm:cache_config_info{engine="1",num_gpu_blocks="100",block_size="16"} 1\n'
    )
    c = parse(text)
    assert c.counters["prompt_tokens"] == 15
    assert c.gauges["kv_usage"] == 0.9
    assert c.engines == 2
    assert c.capacity_tokens == 3200


@pytest.mark.parametrize(
    "text", ["", "<html><body>502 Bad Gateway</body></html>", "\x00\xff", '{"detail":"Not Found"}']
)
def test_a_page_of_something_else_has_no_counters(text: str) -> None:
    c = parse(text)
    assert c.counters == {}
    assert c.family is None
    assert c.in_flight is None
    assert c.capacity_tokens is None


def test_a_page_cut_in_a_wanted_line_is_refused() -> None:
    with pytest.raises(ValueError):
        parse('vllm:prompt_tokens_total{engine="0",model_na')


def test_no_number_is_not_zero() -> None:
    c = parse(
        'vllm:prompt_tokens_total NaN\nvllm:cache_config_info{num_gpu_blocks="None",block_size="16"} 1\n'
    )
    assert "prompt_tokens" not in c.counters
    assert c.capacity_tokens is None


def test_delta_counts_only_what_both_pages_have() -> None:
    old = parse(page("vllm-0.26-lmcache"))
    change = delta(old, after(old, prompt_tokens=7, queue_s=0.5))
    assert change.tokens("prompt_tokens") == 7
    assert change.counters["queue_s"] == 0.5
    assert change.tokens("load_bytes") is None
    assert not change.restarted


def test_a_restart_gives_no_differences() -> None:
    old = parse(page("vllm-0.26-lmcache"))
    fallen = delta(old, after(old, prompt_tokens=-1))
    moved = delta(old, parse(page("vllm-0.26-off")))
    assert fallen.restarted
    assert moved.restarted
    assert fallen.counters == moved.counters == {}
    assert tiers(moved, 140_000, 0) is None


@given(st.integers(0, 200_000), st.integers(0, 200_000), st.integers(0, 200_000))
def test_tiers_of_a_lone_turn_add_up_to_its_prompt(compute: int, hbm: int, external: int) -> None:
    old = parse(page("vllm-0.26-lmcache"))
    prompt = compute + hbm + external
    new = after(old, prompt_tokens=prompt, compute_tokens=compute, hbm_tokens=hbm, external_tokens=external)
    assert tiers(delta(old, new), prompt, hbm + external) == Tiers(compute, hbm, external, 0)
    assert tiers(delta(old, new), prompt, None) == Tiers(compute, hbm, external, 0)


def test_tiers_are_refused_when_another_turn_ran_too() -> None:
    old = parse(page("vllm-0.26-lmcache"))
    new = after(old, prompt_tokens=280_000, hbm_tokens=140_000, compute_tokens=140_000)
    assert tiers(delta(old, new), 140_000, 140_000) is None


def test_tiers_are_refused_when_usage_contradicts_them() -> None:
    old = parse(page("vllm-0.26-lmcache"))
    new = after(old, prompt_tokens=140_000, hbm_tokens=100_000, compute_tokens=40_000)
    assert tiers(delta(old, new), 140_000, 100_001) is not None  # the token recomputed on a full hit
    assert tiers(delta(old, new), 140_000, 99_000) is None


def test_tiers_are_refused_when_hits_were_counted_at_every_admission() -> None:
    old = parse("vllm:prompt_tokens_total 0\nvllm:prefix_cache_hits_total 0\n")
    new = parse("vllm:prompt_tokens_total 1000\nvllm:prefix_cache_hits_total 28800\n")
    assert tiers(delta(old, new), 1000, None) is None


def test_cached_tokens_without_a_source_are_of_unknown_tier() -> None:
    old = parse("sglang:prompt_tokens_total 0\nsglang:cached_tokens_total 0\n")
    new = parse("sglang:prompt_tokens_total 1000\nsglang:cached_tokens_total 600\n")
    assert tiers(delta(old, new), 1000, 600) == Tiers(compute=400, unknown=600)
