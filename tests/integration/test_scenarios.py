"""Every locustfile that ships plays, small, against the simulated endpoint; the capacity search finds a number."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest
from processes import Process, only_run, samples_in

from loadgen import paths

pytestmark = pytest.mark.nightly
LOCUSTFILES = [
    path for path in sorted(paths.data_dir("locustfiles").glob("*.py")) if path.name != "capacity.py"
]
TINY = {"LOADGEN_SESSIONS": "3", "LOADGEN_CONTEXT_TOKENS": "3000", "LOADGEN_OUTPUT_TOKENS": "8"}
FIXED = {  # what a scenario's own recipe or trace decides
    "fan_out.py": {"LOADGEN_OUTPUT_TOKENS": "8"},
    "tenants.py": {"LOADGEN_SESSIONS": "3", "LOADGEN_OUTPUT_TOKENS": "8"},
    "shared_prefix.py": {"LOADGEN_SESSIONS": "3", "LOADGEN_OUTPUT_TOKENS": "8"},
    "morning.py": {**TINY, "LOADGEN_RATE": "5"},
}


@pytest.mark.parametrize("path", LOCUSTFILES, ids=lambda path: path.stem)
def test_a_locustfile_plays_to_its_end(path: Path, endpoint: str, cache: Path, tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(path),
        "--headless",
        "--only-summary",
        "--host",
        endpoint,
    ]
    code, _, err = Process(command, cache, {**FIXED.get(path.name, TINY), "LOADGEN_OUT": str(tmp_path)}).wait(
        300
    )
    assert code in (0, 3), err
    found = samples_in(only_run(tmp_path))
    assert found
    assert [sample["error"] for sample in found if sample["error"]] == []
    if path.name == "fan_out.py":
        assert sum(sample["agent"] == "explore" for sample in found) == 2 * 3 * 3
    if path.name == "broken_prefix.py":
        assert [sample["cached_tokens"] for sample in found if sample["cached_tokens"]] == []


def test_the_capacity_search_steps_until_the_slo_breaks(endpoint: str, cache: Path, tmp_path: Path) -> None:
    text = paths.find("capacity.py").read_text()
    text = text.replace("LIMIT_S, SHARE = 8.0", "LIMIT_S, SHARE = 0.000001").replace(
        "STEP, STEP_S, MOST = 2, 60.0", "STEP, STEP_S, MOST = 2, 6.0"
    )
    assert "0.000001" in text
    assert "6.0, 64" in text
    file = tmp_path / "capacity.py"
    file.write_text(text)
    command = [
        sys.executable,
        "-m",
        "locust",
        "-f",
        str(file),
        "--headless",
        "--only-summary",
        "--host",
        endpoint,
    ]
    code, out, err = Process(
        command, cache, {**TINY, "LOADGEN_COPIES": "300", "LOADGEN_OUT": str(tmp_path / "runs")}
    ).wait(300)
    assert code in (0, 3), err
    (first,) = re.findall(r"^2 sessions: (\S+)% of (\d+) later turns", out + err, re.MULTILINE)
    assert float(first[0]) == 0
    assert int(first[1]) > 0
    assert "capacity: 0 sessions" in out + err
