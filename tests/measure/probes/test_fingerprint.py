"""What a server is, and when two of them may not be compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadgen.measure.probes.fingerprint import MEANING, differences, fingerprint
from loadgen.measure.probes.server import parse

PAGES = Path(__file__).parent / "pages"
MODELS = '{"object":"list","data":[{"id":"a","root":"/m/a","max_model_len":100},{"id":"b","root":"/m/b","max_model_len":200}]}'


def of(
    name: str, models: object = MODELS, version: object = '{"version":"0.26.0"}', model: str | None = None
) -> dict:  # type: ignore[type-arg]
    return fingerprint(parse((PAGES / f"{name}.txt").read_text()), models, version, model)


def test_all_that_is_visible_is_in_it() -> None:
    facts = of("vllm-0.26-lmcache", model="b")
    assert facts["engine"] == "vllm"
    assert facts["version"] == "0.26.0"
    assert (facts["model"], facts["root"], facts["max_model_len"]) == ("b", "/m/b", 200)
    assert (facts["block_size"], facts["capacity_tokens"], facts["gpu_memory_utilization"]) == (
        16,
        352_288,
        0.4,
    )
    assert facts["prefix_caching"] is True
    assert "kv_offloading_size" not in facts  # the label says None


@pytest.mark.parametrize(
    ("name", "connector"),
    [
        ("vllm-0.26-off", "none"),
        ("vllm-0.26-lmcache", "some"),
        ("vllm-0.32-lmcache-mp", "LMCacheMPConnector"),
        ("vllm-0.20-native", "OffloadingConnector"),
        ("sglang-0.5", "HiCache"),
    ],
)
def test_the_connector_is_named_only_where_the_page_gives_it_away(name: str, connector: str) -> None:
    assert of(name)["connector"] == connector


def test_a_fresh_server_has_not_shown_its_connector() -> None:
    fresh = parse("vllm:prefix_cache_queries_total 0\nvllm:external_prefix_cache_queries_total 0\n")
    assert fingerprint(fresh)["connector"] == "unknown"


@pytest.mark.parametrize("models", [None, b"<html>", "[]", '{"data": 3}', '{"data": [1]}', {"data": []}])
def test_odd_answers_are_silence(models: object) -> None:
    facts = of("vllm-0.26-off", models, b"\xff")
    assert "model" not in facts
    assert "version" not in facts


def test_arms_that_differ_in_what_the_experiment_names_are_equal() -> None:
    off, on = of("vllm-0.26-off"), of("vllm-0.26-lmcache")
    assert [d.field for d in differences(off, on)] == ["connector"]
    assert differences(off, on, named=["connector"]) == []
    assert off["started_s"] != on["started_s"]


def test_every_difference_has_a_meaning_and_silence_is_one() -> None:
    facts = of("vllm-0.26-off")
    without = {k: v for k, v in facts.items() if k != "capacity_tokens"}
    (found,) = differences(facts, without)
    assert (found.field, found.left, found.right) == ("capacity_tokens", 352_288, None)
    assert found.meaning == MEANING["capacity_tokens"]


def test_a_default_of_a_feature_that_is_off_is_no_difference() -> None:
    facts = of("vllm-0.26-off")
    older = {k: v for k, v in facts.items() if k != "kv_offloading_backend"}
    assert differences(facts, older) == []
    assert [
        d.field for d in differences({**facts, "kv_offloading_size": 64}, {**older, "kv_offloading_size": 64})
    ] == ["kv_offloading_backend"]
