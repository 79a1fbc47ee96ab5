"""The tab, the live page and the metrics page of a run under Locust's web UI, and in a browser where there is one."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from processes import Process, only_run
from prometheus_client.parser import text_string_to_metric_families

from loadgen import __version__, paths
from loadgen.measure.run import read_run

SESSIONS, TURNS = 4, 3
SMALL = [
    "--sessions",
    str(SESSIONS),
    "--turns",
    str(TURNS),
    "--context-tokens",
    "2000",
    "--output-tokens",
    "8",
]
CHROMIUM = next(
    (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))),
    None,
)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def fetch(url: str) -> bytes:
    with urllib.request.urlopen(url, timeout=10) as answer:
        return bytes(answer.read())


def wait_for(url: str, ready: Any, timeout_s: float = 60) -> Any:
    deadline = time.monotonic() + timeout_s
    found: Any = None
    while time.monotonic() < deadline:
        try:
            found = json.loads(fetch(url))
        except (OSError, ValueError):
            found = None
        if found and ready(found):
            return found
        time.sleep(0.2)
    pytest.fail(f"{url} after {timeout_s} s: {found}")


@pytest.fixture(scope="module", params=[[], ["--processes", "2"]], ids=["one process", "two workers"])
def ui(
    request: pytest.FixtureRequest, endpoint: str, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[str]:
    """A finished run whose web UI is still up."""
    port, master = free_port(), str(free_port())
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(paths.find("agent_loop.py")),
        "--host",
        endpoint,
        "--autostart",
    ]
    command += [
        "--web-port",
        str(port),
        "--web-base-path",
        "/load",
        *SMALL,
        "--out",
        str(tmp_path_factory.mktemp("runs")),
    ]
    command += request.param
    if request.param:
        command += ["--expect-workers", "2", "--master-bind-port", master, "--master-port", master]
    process = Process(command, cache)
    url = f"http://127.0.0.1:{port}/load"
    try:
        wait_for(f"{url}/loadgen/live.json", lambda live: live["state"] == "finished")
        yield url
    finally:
        process.popen.terminate()
        process.wait()


def test_the_live_figures_are_those_of_the_whole_run(ui: str) -> None:
    live = json.loads(fetch(f"{ui}/loadgen/live.json"))
    assert live["turns"] == {"done": SESSIONS * TURNS, "planned": SESSIONS * TURNS, "errors": 0}
    assert live["in_flight"] == {"sessions": 0, "turns": 0}
    assert {name: times["turns"] for name, times in live["ttft_s"].items()} == {
        "first": 4,
        "reuse": 8,
        "all": 12,
    }
    assert 0 < live["ttft_s"]["reuse"]["p50"] < live["ttft_s"]["reuse"]["max"] + 1e-9
    assert 0.5 < live["cached_share"] < 1
    assert sum(live["tiers"].values()) == pytest.approx(1)
    assert live["workers"]
    assert all(worker["loop_lag_p99_s"] >= 0 and not worker["lost"] for worker in live["workers"])


def test_locusts_own_page_has_the_tab_and_its_rows(ui: str) -> None:
    page = fetch(f"{ui}/").decode()
    assert '"title": "Agents"' in page
    assert '"key": "loadgen"' in page
    stats = json.loads(fetch(f"{ui}/stats/requests"))
    (table,) = [table for table in stats["extended_stats"] if table["key"] == "loadgen"]
    by_name = {row["figure"]: row for row in table["data"]}
    assert by_name["turns"] == {"figure": "turns", "first": "4", "reuse": "8", "all": "12"}
    assert by_name["TTFT p99"]["all"] == "n<299"


def test_the_metrics_page_agrees_with_the_live_figures(ui: str) -> None:
    families = {f.name: f for f in text_string_to_metric_families(fetch(f"{ui}/loadgen/metrics").decode())}
    counts = {
        s.labels["class"]: s.value
        for s in families["loadgen_ttft_seconds"].samples
        if s.name.endswith("_count")
    }
    assert counts == {"first": 4, "reuse": 8}
    assert families["loadgen_running"].samples[0].value == 0


def test_the_live_page_needs_nothing_from_elsewhere(ui: str) -> None:
    for name in ("", "live.js", "uPlot.iife.min.js", "uPlot.min.css", "report.css"):
        assert fetch(f"{ui}/loadgen/{name}")
    with urllib.request.urlopen(f"{ui}/loadgen/", timeout=10) as answer:
        assert answer.headers["Content-Security-Policy"].startswith("default-src 'self'")
        assert b"http" not in answer.read().replace(b"http-equiv", b"")
    with pytest.raises(urllib.error.HTTPError, match="404"):
        fetch(f"{ui}/loadgen/plugin.py")


@pytest.mark.nightly
@pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium")
@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("/loadgen/", ["12 of 12 turns", "SIMULATED", "reuse TTFT p50", "n&lt;299"]),
        ("/?tab=loadgen", ["TTFT p99", "loop lag p99, worst worker"]),
    ],
)
def test_a_browser_shows_them(ui: str, path: str, wanted: list[str]) -> None:
    assert CHROMIUM is not None
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--virtual-time-budget=8000",
        "--dump-dom",
        ui + path,
    ]
    dom = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout
    for words in wanted:
        assert words in dom


def test_metrics_can_be_scraped_while_a_headless_run_lasts(
    endpoint: str, cache: Path, tmp_path: Path
) -> None:
    port = free_port()
    words = [
        "run",
        "--host",
        endpoint,
        "--sessions",
        "6",
        "--turns",
        "8",
        "--context-tokens",
        "2000",
        "--output-tokens",
        "300",
    ]
    words += ["--metrics", str(port), "--out", str(tmp_path)]
    process = Process([sys.executable, "-m", "loadgen", *words], cache)
    seen = set()
    while process.popen.poll() is None:
        try:
            page = fetch(f"http://127.0.0.1:{port}/metrics").decode()
        except OSError:
            time.sleep(0.05)
            continue
        families = {f.name: f for f in text_string_to_metric_families(page)}
        if "loadgen_planned_turns" in families:
            assert families["loadgen_planned_turns"].samples[0].value == 6 * 8
            seen.add(families["loadgen_turns"].samples[0].value)
        time.sleep(0.05)
    code, _, err = process.wait()
    assert code in (0, 3), err
    assert seen & set(range(1, 48)), "the page showed no turn while the run lasted"


def test_a_metrics_address_that_is_taken_is_refused_before_the_run(
    endpoint: str, cache: Path, tmp_path: Path
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        words = [
            "run",
            "--host",
            endpoint,
            *SMALL,
            "--metrics",
            str(taken.getsockname()[1]),
            "--out",
            str(tmp_path),
        ]
        code, _, err = Process([sys.executable, "-m", "loadgen", *words], cache).wait()
    assert code == 2, err
    assert "metrics cannot be served" in err


def test_a_run_records_the_commit_that_played_it(endpoint: str, cache: Path, tmp_path: Path) -> None:
    words = ["run", "--host", endpoint, *SMALL, "--out", str(tmp_path)]
    code, _, err = Process([sys.executable, "-m", "loadgen", *words], cache).wait()
    assert code in (0, 3), err
    recorded = read_run(only_run(tmp_path)).versions["loadgen"]
    known = (paths.data_dir("locustfiles").parent / ".git").exists()
    assert re.fullmatch(re.escape(__version__) + (r" \([0-9a-f]{12}\+?\)" if known else r".*"), recorded)
