"""`loadgen run` and bare Locust against the simulated endpoint: real sockets, real Locust processes."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from processes import Process, only_run, samples_in, wait_for_samples

from loadgen import paths
from loadgen.measure.run import read_run

SMALL = ("--sessions", "4", "--turns", "3", "--context-tokens", "2000", "--output-tokens", "8")
LONG = ("--sessions", "6", "--turns", "8", "--context-tokens", "2000", "--output-tokens", "400")
Start = Callable[..., Process]


def summary(folder: Path) -> dict[str, object]:
    found: dict[str, object] = json.loads((folder / "summary.json").read_text())
    return found


def codes(folder: Path) -> set[str]:
    return {reason["code"] for reason in summary(folder)["reasons"]}  # type: ignore[attr-defined]


# What a busy test machine may do to the client's own timing; everything else must be clean.
CLIENT_TIMING = {
    "coalesced_first_tokens",
    "loop_lag",
    "send_late",
    "client_saturated",
    "late_simulated_tokens",
}


def test_a_sweep_goes_in_order_and_every_figure_agrees_with_the_plan(
    endpoint: str, loadgen: Start, tmp_path: Path
) -> None:
    code, out, err = loadgen("run", "--host", endpoint, *SMALL, "--out", str(tmp_path)).wait()
    assert code in (0, 3), err
    assert "SIMULATED" in out
    folder = only_run(tmp_path)
    assert codes(folder) <= CLIENT_TIMING
    info = read_run(folder)
    assert (info.state, info.merged_exactly, info.plan.turns) == ("finished", True, 12)
    found = sorted(samples_in(folder), key=lambda s: s["send_ns"])
    assert [(s["turn"], s["session"]) for s in found] == [
        (t, f"s{k:04d}") for t in range(3) for k in range(4)
    ]
    for s in found:
        assert s["error"] is None
        assert s["prompt_tokens"] == s["target_tokens"]
        assert s["output_tokens"] == s["requested_tokens"] == 8
        assert s["class"] == ("first" if s["turn"] == 0 else "reuse")
        assert s["send_ns"] <= s["sent_ns"] <= s["first_token_ns"] <= s["last_token_ns"] <= s["end_ns"]
        assert s["intended_ns"] <= s["send_ns"]
        # Whole blocks of what was sent before, and nothing of what was not.
        assert s["expected_reuse"] - 16 < s["cached_tokens"] <= s["expected_reuse"]
        assert s["tier_source"] == "isolated"
        assert sum(s["tiers"].values()) == s["prompt_tokens"]


def test_the_report_can_be_rebuilt_from_the_samples_alone(
    endpoint: str, loadgen: Start, tmp_path: Path
) -> None:
    loadgen("run", "--host", endpoint, *SMALL, "--out", str(tmp_path)).wait()
    folder = only_run(tmp_path)
    before = (folder / "summary.json").read_bytes()
    for name in ("summary.json", "report.html", "turns.hlog"):
        (folder / name).unlink()
    code, out, _ = loadgen("report", str(folder), "--json").wait()
    assert code == 0
    assert (folder / "summary.json").read_bytes() == before
    assert json.loads(out)["groups"]["all"]["turns"] == 12
    assert (folder / "report.html").stat().st_size > 10_000


@pytest.mark.parametrize(
    "schedule", [("--schedule", "closed", "-u", "3"), ("--width", "3"), ("--schedule", "open", "--rate", "5")]
)
def test_two_workers_play_each_session_once_and_merge_exactly(
    endpoint: str, loadgen: Start, tmp_path: Path, schedule: tuple[str, ...]
) -> None:
    code, _, err = loadgen(
        "run", "--host", endpoint, *SMALL, *schedule, "--processes", "2", "--out", str(tmp_path)
    ).wait()
    assert code in (0, 3), err
    folder = only_run(tmp_path)
    assert codes(folder) <= CLIENT_TIMING
    assert read_run(folder).merged_exactly
    found = samples_in(folder)
    assert Counter((s["session"], s["turn"]) for s in found) == Counter(
        (f"s{k:04d}", t) for k in range(4) for t in range(3)
    )
    owners = {(s["session"], s["worker"]) for s in found}
    assert len(owners) == 4, "a session was played by two workers"


def test_bare_locust_works_with_its_own_flags_and_shows_ours(
    endpoint: str, cache: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "locust", "-f", str(paths.find("agent_loop.py"))]
    code, out, _ = Process([*command, "--help"], cache).wait()
    assert code == 0
    for flag in (
        "--trace",
        "--corpus",
        "--sessions",
        "--turns",
        "--output-tokens",
        "--schedule",
        "--model",
        "--api-key-env",
    ):
        assert flag in out
    process = Process([*command, "--headless", "--host", endpoint, *SMALL, "--out", str(tmp_path)], cache)
    code, out, err = process.wait()
    assert code in (0, 3), err
    assert len(samples_in(only_run(tmp_path))) == 12
    assert "TTFT" in out + err  # Locust's own table has our rows


@pytest.mark.parametrize("extra", [(), ("--processes", "2", "--width", "2")])
@pytest.mark.parametrize(("number", "to_group"), [(signal.SIGINT, True), (signal.SIGTERM, False)])
def test_a_signal_costs_no_sample(
    endpoint: str,
    loadgen: Start,
    tmp_path: Path,
    extra: tuple[str, ...],
    number: signal.Signals,
    to_group: bool,
) -> None:
    process = loadgen("run", "--host", endpoint, *LONG, *extra, "--out", str(tmp_path))
    before = wait_for_samples(tmp_path, 5)
    if to_group:
        os.killpg(process.popen.pid, number)
    else:
        process.popen.send_signal(number)
    code, _, err = process.wait()
    assert code == 130, err
    folder = only_run(tmp_path)
    assert read_run(folder).state == "interrupted"
    assert read_run(folder).merged_exactly
    assert "interrupted" in codes(folder)
    assert len(samples_in(folder)) >= before
    assert summary(folder)["total_s"] is None


def test_a_killed_worker_loses_its_sessions_and_the_rest_goes_on(
    endpoint: str, loadgen: Start, tmp_path: Path
) -> None:
    process = loadgen(
        "run", "--host", endpoint, *LONG, "--processes", "2", "--width", "2", "--out", str(tmp_path)
    )
    wait_for_samples(tmp_path, 5)
    victim = process.descendants()[-1]
    os.kill(victim, signal.SIGKILL)
    code, _, err = process.wait()
    assert code == 3, err
    folder = only_run(tmp_path)
    info = read_run(folder)
    assert info.state == "finished"
    assert "lost_worker" in {incident.code for incident in info.incidents}
    played = Counter((s["session"], s["turn"]) for s in samples_in(folder))
    assert max(played.values()) == 1
    whole = [k for k in range(6) if sum(session == f"s{k:04d}" for session, _ in played) == 8]
    assert len(whole) >= 2


def _nothing_left(tmp_path: Path) -> bool:
    return not any(tmp_path.rglob("*"))


def test_an_endpoint_that_is_down_is_one_sentence(loadgen: Start, tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{probe.getsockname()[1]}"
        code, out, err = loadgen("run", "--host", url, *SMALL, "--out", str(tmp_path / "runs")).wait()
    assert code == 2
    assert err.startswith(f"loadgen: {url} cannot be reached")
    assert err.count("\n") == 1
    assert out == ""
    assert _nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (("--model", "nope"), "does not serve the model 'nope'; it serves mistral-medium-3.5-128b"),
        (("--context-tokens", "9000000"), "too little text|9,?000,?000"),
        (("--corpus", "/no/such/repository"), "no repository, folder or recipe called"),
        (("--trace", "/no/such/trace.jsonl"), "there is no trace /no/such/trace.jsonl"),
        (("-u", "3"), "-u 3 has no effect with --schedule sweep"),
        (("--tokenizer", "tiktoken:nope"), "nope"),
    ],
)
def test_bad_input_is_one_sentence_and_exit_2(
    endpoint: str, loadgen: Start, tmp_path: Path, words: tuple[str, ...], part: str
) -> None:
    import re

    code, out, err = loadgen(
        "run", "--host", endpoint, "--sessions", "2", *words, "--out", str(tmp_path / "runs")
    ).wait()
    assert code == 2, (out, err)
    sentences = [line for line in err.splitlines() if line.startswith("loadgen: ")]
    assert len(sentences) == 1
    assert re.search(part, sentences[0]), sentences[0]
    assert not list(tmp_path.rglob("run.json"))


def test_a_truncated_trace_line_names_file_and_line(endpoint: str, loadgen: Start, tmp_path: Path) -> None:
    trace = tmp_path / "t.jsonl"
    trace.write_text(
        '{"type":"trace","version":1,"fidelity":"messages"}\n{"type":"session","id":"s"}\n{"type":"turn","sess'
    )
    code, _, err = loadgen(
        "run", "--host", endpoint, "--trace", str(trace), "--out", str(tmp_path / "runs")
    ).wait()
    assert code == 2
    assert f"{trace}:3" in err
    assert not (tmp_path / "runs").exists()


def test_a_port_in_use_is_one_sentence(loadgen: Start) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, err = loadgen("sim", "--port", str(taken.getsockname()[1])).wait()
    assert code == 2
    assert err.startswith("loadgen: ")
    assert str(taken) not in err
    assert err.count("\n") == 1


def test_a_dry_run_sends_nothing(endpoint: str, loadgen: Start, tmp_path: Path) -> None:
    code, _, err = loadgen(
        "run", "--host", endpoint, *SMALL, "--dry-run", "--out", str(tmp_path / "runs")
    ).wait()
    assert code == 0
    assert "4 sessions, 12 turns" in err
    assert _nothing_left(tmp_path)


def test_the_key_reaches_the_server_and_no_file(endpoint: str, loadgen: Start, tmp_path: Path) -> None:
    secret = "sk-secret-7c1d5e9f"
    code, out, err = loadgen(
        "run", "--host", endpoint, *SMALL, "--out", str(tmp_path), env={"OPENAI_API_KEY": secret}
    ).wait()
    assert code in (0, 3)
    assert secret not in out + err
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or secret.encode() not in path.read_bytes(), path


def test_help_is_there_for_every_command(loadgen: Start) -> None:
    from loadgen.cli import COMMANDS

    for name in COMMANDS:
        done = subprocess.run(
            [sys.executable, "-m", "loadgen", name, "--help"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, (name, done.stderr)
        assert name in done.stdout
