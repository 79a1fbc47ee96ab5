"""What a schedule, an API or a policy changes, seen in the samples. Real sockets, real Locust processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from processes import Process, only_run, samples_in, wait_for_samples

from loadgen import paths
from loadgen.measure.run import read_run

SMALL = ("--sessions", "3", "--turns", "3", "--context-tokens", "1000", "--output-tokens", "6")
Start = Callable[..., Process]


@pytest.fixture
def play(endpoint: str, loadgen: Start, tmp_path: Path) -> Callable[..., tuple[list[dict[str, Any]], Path]]:
    def run(*words: str, base: tuple[str, ...] = SMALL) -> tuple[list[dict[str, Any]], Path]:
        code, out, err = loadgen("run", "--host", endpoint, *base, *words, "--out", str(tmp_path)).wait()
        assert code in (0, 3), (out, err)
        folder = only_run(tmp_path)
        found = sorted(samples_in(folder), key=lambda s: s["send_ns"])
        assert all(s["error"] is None for s in found), [s["message"] for s in found]
        return found, folder

    return run


@pytest.mark.parametrize("api", ["chat", "completions", "responses", "messages"])
def test_every_api_sends_the_planned_tokens_and_hits_what_it_sent(play: Any, api: str) -> None:
    found, _ = play("--api", api)
    assert len(found) == 9
    for s in found:
        assert s["prompt_tokens"] == s["target_tokens"]
        assert s["expected_reuse"] - 16 < s["cached_tokens"] <= s["expected_reuse"]


def test_token_exact_answers_make_generated_tokens_reusable(play: Any) -> None:
    found, _ = play("--api", "completions", "--answers", "tokens", "--output-tokens", "40")
    recorded = {(s["session"], s["turn"]): s["prompt_tokens"] for s in found}
    for s in found:
        assert s["prompt_tokens"] == s["target_tokens"]
        if s["turn"]:
            # All of the prompt before and the 40 generated tokens but the last, whose KV was never computed.
            assert s["expected_reuse"] == recorded[s["session"], s["turn"] - 1] + 39
            assert s["expected_reuse"] - 16 < s["cached_tokens"] <= s["expected_reuse"]


def test_live_answers_are_what_the_server_said(play: Any) -> None:
    found, _ = play("--answers", "live")
    assert [s["target_tokens"] is None for s in found] == [s["turn"] > 0 for s in found]
    for s in found:
        assert s["turn"] == 0 or s["cached_tokens"] > 0


def test_the_openai_client_plays_the_same_turns(play: Any) -> None:
    found, _ = play("--client", "openai")
    assert len(found) == 9
    assert {s["clock"] for s in found} == {"loop"}
    assert all(s["prompt_tokens"] == s["target_tokens"] for s in found)


def test_warm_up_turns_are_kept_apart(play: Any) -> None:
    found, folder = play("--warmup", "2")
    assert len(found) == 9
    warm = [
        json.loads(line) for path in folder.glob("warmup-*.jsonl") for line in path.read_text().splitlines()
    ]
    assert [s["session"] for s in warm] == ["warmup-0", "warmup-1"]
    assert max(s["end_ns"] for s in warm) <= min(s["send_ns"] for s in found)
    assert all(s["cached_tokens"] == 0 for s in found if s["class"] == "first"), (
        "the warm-up's nonce was the run's"
    )


def test_copies_are_cold_to_each_other_and_a_cap_holds_turns_in_flight(play: Any) -> None:
    found, folder = play(
        "--copies", "3", "--schedule", "closed", "-u", "6", "--in-flight", "2", "--processes", "2"
    )
    assert len(found) == 27
    assert len({s["session"] for s in found}) == 9
    assert all(s["cached_tokens"] == 0 for s in found if s["class"] == "first")
    events = sorted([(s["send_ns"], 1) for s in found] + [(s["end_ns"], -1) for s in found])
    level = highest = 0
    for _, step in events:
        level += step
        highest = max(highest, level)
    assert highest <= 2
    assert any(s["cap_wait_ns"] > 0 for s in found)
    assert read_run(folder).merged_exactly


def test_starts_that_are_spread_do_not_hurry_the_sessions_that_come_after_them(play: Any) -> None:
    found, _ = play("--copies", "3", "--schedule", "closed", "-u", "2", "--stagger", "0.01")
    starts = sorted((s for s in found if s["turn"] == 0), key=lambda s: s["intended_ns"])
    assert len(starts) == 9
    for number, start in enumerate(starts[2:], 2):
        before = [s for s in found if s["intended_ns"] < start["intended_ns"]]
        last = {s["session"]: s["end_ns"] for s in sorted(before, key=lambda s: s["end_ns"])}
        running = sum(end > start["intended_ns"] for end in last.values())
        assert running <= 1, f"session {number} was meant to start while two were live"


def test_sessions_met_in_the_middle_have_their_history_and_no_reuse(play: Any) -> None:
    found, folder = play("--schedule", "closed", "-u", "3", "--mid-start", "--turns", "6", "--seed", "3")
    begins = {}
    for s in found:
        begins.setdefault(s["session"], s)
    assert any(s["turn"] > 0 for s in begins.values())
    for s in begins.values():
        assert (s["class"], s["cached_tokens"]) == ("first", 0)
        assert s["prompt_tokens"] == s["target_tokens"]
    assert read_run(folder).plan.turns == len(found)


@pytest.mark.parametrize("processes", [pytest.param("1", marks=pytest.mark.nightly), "2"])
def test_a_step_down_cuts_on_purpose_and_fails_nothing(play: Any, processes: str) -> None:
    found, folder = play(
        "--schedule", "closed", "--stages", "6:100,1:150", *(("--processes", processes) if processes != "1" else ()),
        base=("--sessions", "30", "--turns", "8", "--context-tokens", "4000", "--output-tokens", "400"),
    )  # fmt: skip
    cut = [s for s in found if s["finish"] == "aborted"]
    assert 1 <= len(cut) <= 5, "five lanes go, most of them with a turn under way"
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["groups"]["all"]["aborted"] == len(cut)
    assert "error_limit" not in [reason["code"] for reason in summary["reasons"]]


def test_a_slice_of_turns_starts_with_the_history(play: Any) -> None:
    found, _ = play("--first-turn", "1", "--turns", "1")
    assert [(s["turn"], s["class"]) for s in found] == [(1, "first")] * 3
    assert all(s["prompt_tokens"] == s["target_tokens"] > 1100 for s in found)


def test_a_run_that_ends_after_some_turns_ends_as_planned(play: Any) -> None:
    found, folder = play("--schedule", "closed", "-u", "2", "--stop-after", "4")
    assert 4 <= len(found) <= 6
    info = read_run(folder)
    assert (info.state, info.schedule["stopped_by"]) == ("finished", "turns")
    codes = {reason["code"] for reason in json.loads((folder / "summary.json").read_text())["reasons"]}
    assert "sessions_cut" not in codes


def test_open_arrivals_keep_their_times(play: Any) -> None:
    found, folder = play("--schedule", "open", "--rate", "2", "--sessions", "5", "--turns", "1")
    job = json.loads((folder / "job.json").read_text())
    arrivals = {session["id"]: session["arrival_s"] for session in job["sessions"]}
    begin = min(s["intended_ns"] for s in found)
    for s in found:
        assert (s["intended_ns"] - begin) * 50 / 1e9 == pytest.approx(arrivals[s["session"]], abs=0.01)


def test_slo_rules_give_the_exit_code(endpoint: str, loadgen: Start, tmp_path: Path) -> None:
    rules = tmp_path / "slo.toml"
    rules.write_text('[[slo]]\nmetric = "errors"\nmax = 0\n\n[[slo]]\nmetric = "total_s"\nmax = 0.001\n')
    code, _, err = loadgen(
        "run", "--host", endpoint, *SMALL, "--slo", str(rules), "--out", str(tmp_path / "r")
    ).wait()
    assert code in (1, 3), err  # 3 when this machine was too busy for a valid run
    assert code == 3 or "total_s" in err
    rules.write_text('[[slo]]\nmetric = "nonsense"\n')
    code, _, err = loadgen(
        "run", "--host", endpoint, *SMALL, "--slo", str(rules), "--out", str(tmp_path / "s")
    ).wait()
    assert code == 2
    assert str(rules) in err
    assert not (tmp_path / "s").exists()


def test_an_interrupted_run_goes_on_where_it_ended(endpoint: str, loadgen: Start, tmp_path: Path) -> None:
    words = ("--sessions", "4", "--turns", "5", "--context-tokens", "1000", "--output-tokens", "300")
    process = loadgen("run", "--host", endpoint, *words, "--out", str(tmp_path))
    wait_for_samples(tmp_path, 6)
    process.popen.send_signal(signal.SIGTERM)
    assert process.wait()[0] == 130
    folder = only_run(tmp_path)
    before = len(samples_in(folder))
    code, out, err = loadgen("run", "--resume", str(folder)).wait()
    assert code in (0, 3), (out, err)
    found = samples_in(folder)
    good = Counter((s["session"], s["turn"]) for s in found if s["error"] is None)
    assert good == Counter((f"s{k:04d}", t) for k in range(4) for t in range(5))
    assert len(found) - before == 20 - sum(s["error"] is None for s in found[:before]) or before <= len(found)
    info = read_run(folder)
    assert (info.state, len(info.resumed)) == ("finished", 1)
    assert json.loads((folder / "summary.json").read_text())["total_s"] is None
    assert all(s["cached_tokens"] > 0 for s in found if s["turn"] and s["error"] is None)
    assert loadgen("run", "--resume", str(folder)).wait()[0] == 2


def test_a_stopped_worker_is_lost_and_the_rest_goes_on(endpoint: str, loadgen: Start, tmp_path: Path) -> None:
    words = (
        "--sessions",
        "4",
        "--turns",
        "6",
        "--context-tokens",
        "1000",
        "--output-tokens",
        "400",
        "--width",
        "2",
        "--processes",
        "2",
    )
    process = loadgen("run", "--host", endpoint, *words, "--out", str(tmp_path))
    wait_for_samples(tmp_path, 4)
    victim = process.descendants()[-1]
    os.kill(victim, signal.SIGSTOP)
    code, _, err = process.wait()
    assert code == 3, err
    assert "lost_worker" in {incident.code for incident in read_run(only_run(tmp_path)).incidents}
    assert not Path(f"/proc/{victim}").exists() or "State:\tZ" in Path(f"/proc/{victim}/status").read_text()


def _own_network() -> bool:
    return (
        os.geteuid() == 0
        and subprocess.run(["unshare", "-mn", "true"], capture_output=True, check=False).returncode == 0
    )


@pytest.mark.skipif(not _own_network(), reason="needs the right to make network and mount namespaces")
def test_workers_on_another_machine_fetch_and_ship_everything(cache: Path, tmp_path: Path) -> None:
    """Two workers in a network namespace of their own, without sight of the run folder or the cache."""
    name, number = f"lg{os.getpid()}", os.getpid() % 200
    master, other = f"10.{number}.77.1", f"10.{number}.77.2"
    setup = [
        f"ip netns add {name}",
        f"ip link add {name}a type veth peer name {name}b netns {name}",
        f"ip addr add {master}/24 dev {name}a",
        f"ip link set {name}a up",
        f"ip netns exec {name} ip addr add {other}/24 dev {name}b",
        f"ip netns exec {name} ip link set {name}b up",
    ]
    locust = [sys.executable, "-m", "locust", "-f", str(paths.find("agent_loop.py"))]
    runs = tmp_path / "runs"
    runs.mkdir()
    sim = None
    try:
        for line in setup:
            subprocess.run(line.split(), check=True, capture_output=True)
        sim = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "loadgen",
                "sim",
                "--scale",
                "50",
                "--host",
                master,
                "--port",
                "0",
                "--json",
            ],
            stdout=subprocess.PIPE,
            text=True,
        )
        assert sim.stdout is not None
        url = json.loads(sim.stdout.readline())["url"]
        leader = Process(
            [*locust, "--master", "--master-bind-host", master, "--master-bind-port", "5877", "--headless", "--expect-workers", "2",
             "--expect-workers-max-wait", "60", "--host", url, "--schedule", "closed", "-u", "3", *SMALL, "--out", str(runs)],
            cache,
        )  # fmt: skip
        hide = f"mount -t tmpfs none {runs}; mount -t tmpfs none {cache}; exec"
        words = " ".join([*locust, "--worker", "--master-host", master, "--master-port", "5877"])
        workers = [
            Process(["ip", "netns", "exec", name, "unshare", "-m", "sh", "-c", f"{hide} {words}"], cache)
            for _ in range(2)
        ]
        code, out, err = leader.wait()
        assert code in (0, 3), (out, err)
        for worker in workers:
            worker.wait()
    finally:
        if sim is not None:
            sim.kill()
            sim.wait()
        subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)
    folder = only_run(runs)
    found = samples_in(folder)
    assert Counter((s["session"], s["turn"]) for s in found) == Counter(
        (f"s{k:04d}", t) for k in range(3) for t in range(3)
    )
    assert read_run(folder).merged_exactly
    assert {path.name for path in folder.glob("client-*.jsonl")} == {
        f"client-{w}.jsonl" for w in {s["worker"] for s in found}
    }


@pytest.mark.parametrize(
    "words", [(), ("--api", "completions", "--answers", "tokens"), ("--api", "messages")]
)
def test_agents_with_tools_in_front_are_cold_and_exact(play: Any, words: tuple[str, ...]) -> None:
    """The template puts tools before all content, so the nonce goes into the first tool's description."""
    base = (
        "--corpus",
        "agents",
        "--sessions",
        "2",
        "--turns",
        "2",
        "--context-tokens",
        "20000",
        "--output-tokens",
        "6",
    )
    found, folder = play(*words, base=base)
    assert read_run(folder).template["nonce_in_tools"] == 1
    for s in found:
        assert s["prompt_tokens"] == s["target_tokens"]
        # In front of the nonce stands the template's beginning and the first tool's name: a block of it may hit.
        assert s["cached_tokens"] <= 16 if s["turn"] == 0 else s["cached_tokens"] > 19_000


def test_a_history_that_would_not_fit_is_compacted(play: Any) -> None:
    found, folder = play("--context-tokens", "131000", "--output-tokens", "6", "--new-tokens", "60000", "--overflow", "compact",
                         "--turns", "5", base=("--sessions", "1"))  # fmt: skip
    assert any("compacted history" in note for note in read_run(folder).notes)
    assert len(found) == 5
    assert max(s["prompt_tokens"] for s in found) <= 262_144
    for s in found:
        assert s["prompt_tokens"] == s["target_tokens"]
        assert s["expected_reuse"] - 16 < s["cached_tokens"] <= s["expected_reuse"]
    assert found[3]["prompt_tokens"] < found[2]["prompt_tokens"]
