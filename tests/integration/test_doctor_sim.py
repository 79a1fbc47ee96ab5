"""The doctor on simulated endpoints: with a tier, without one, and one whose keys hold the salt."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from processes import Process

from loadgen.experiment.simulated import simulated_endpoint

Loadgen = Callable[..., Process]


def examined(loadgen: Loadgen, url: str, *words: str) -> dict[str, dict[str, Any]]:
    code, out, err = loadgen("doctor", "--host", url, "--probe-tokens", "2000", "--json", *words).wait()
    found = {finding["check"]: finding for finding in json.loads(out)["findings"]}
    assert code == (3 if any(f["status"] == "fail" for f in found.values()) else 0), err
    return found


def test_an_arm_with_a_tier(loadgen: Loadgen, endpoint: str) -> None:
    found = examined(loadgen, endpoint, "--curve", "4000")
    assert found["reachable"]["data"]["fingerprint"]["engine"] == "vllm"
    assert found["simulated"]["status"] == "note"
    assert (
        found["tokenizer"]["status"] == found["template moves"]["status"] == found["usage"]["status"] == "ok"
    )
    assert found["tier"]["data"]["external_tokens"] >= 1_792  # whole chunks of 256
    assert found["tag"]["data"]["recomputes"] is True
    assert found["skip_save"]["data"]["honoured"] is True
    assert len(found["cold curve"]["data"]["points"]) == 4


def test_an_arm_without_one(loadgen: Loadgen) -> None:
    with simulated_endpoint("blog", "off", 50.0) as url:
        found = examined(loadgen, url)
        assert found["reset"]["data"]["reset_prefix_cache"] is True
        assert "No tier answers" in found["tier"]["meaning"]
