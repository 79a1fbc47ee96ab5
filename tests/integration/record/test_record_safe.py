"""A recording survives: kill -9, a full disk, its size limit, secrets, and hashes without content."""

from __future__ import annotations

import itertools
import json
import resource
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import openai
import zstandard
from record_process import KEY, ROOT, Recorder
from record_upstream import Say, Seen, Upstream

from loadgen.trace.reader import open_trace

Start = Callable[..., Recorder]


def tools_then_text(seen: Seen) -> Say:
    done = sum(message["role"] == "tool" for message in seen.json["messages"])
    if done < 3:
        return Say("I look.", calls=[(f"call_{done}", "look", {"path": f"file{done}"})])
    return Say("That is all.")


def drive(url: str, first: str = "please look", turns: int = 4) -> list[dict[str, Any]]:
    """A small agent: follows tool calls; returns its messages."""
    client = openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, max_retries=0)
    messages: list[Any] = [{"role": "system", "content": "You look."}, {"role": "user", "content": first}]
    for _ in range(turns):
        answer = client.chat.completions.create(model="m", messages=messages).choices[0].message
        messages.append(answer.model_dump(exclude_none=True))
        messages += [
            {"role": "tool", "tool_call_id": call.id, "content": f"{first} " * 40}
            for call in answer.tool_calls or []
        ]
    return messages


def prompts(trace: Path) -> list[list[dict[str, Any]]]:
    """Every prompt as the trace's formula gives it: P(k) = (P(k-1) + [answer(k-1)])[:keep] + append."""
    result = []
    with open_trace(trace) as opened:
        for session in opened.sessions:
            prompt: list[dict[str, Any]] = []
            for turn in opened.turns(session.id):
                prompt = prompt[: turn.keep] + [_whole(opened, message) for message in turn.append or []]
                result.append(prompt)
                prompt = [*prompt, _whole(opened, turn.answer)] if turn.answer else prompt
    return result


def _whole(trace: Any, message: Any) -> Any:
    content = message.get("content")
    return message | {"content": trace.blob(content["blob"]).json} if isinstance(content, dict) else message


def test_the_formula_gives_back_what_was_sent(recorder: Start) -> None:
    with Upstream(tools_then_text) as up:
        record = recorder(up.url)
        drive(record.url, "x" * 3000)
        record.stop()
        sent = [seen.json["messages"][1:] for seen in up.seen]
    for prompt, original in zip(prompts(record.out), sent, strict=True):
        assert [message["role"] for message in prompt] == [message["role"] for message in original]
        assert [message.get("content") or "" for message in prompt] == [
            m.get("content") or "" for m in original
        ]
    assert record.summary["sessions"] == 1
    assert record.summary["ideal_hit_share"] > 0.5
    assert all("keep" not in turn for turn in record.records("turn"))


def _refuses_within(url: str, seconds: float) -> bool:
    host, port = url.removeprefix("http://").split(":")
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        try:
            socket.create_connection((host, int(port)), timeout=1).close()
        except ConnectionRefusedError:
            return True
        time.sleep(0.02)
    return False


def test_kill_9_leaves_a_readable_recording_and_no_process(recorder: Start) -> None:
    with Upstream(tools_then_text) as up:
        record = recorder(up.url)
        drive(record.url)
        deadline = time.monotonic() + 10
        while len(record.records("turn")) < 4 and time.monotonic() < deadline:
            time.sleep(0.02)
        record.kill()
        assert _refuses_within(record.url, 10)  # the forwarding process notices and ends
    with open_trace(record.out) as trace:
        assert trace.turn_count("s1") == 4
        assert trace.open_sessions() == ["s1"]
    with record.out.open("ab") as file:  # a line that was cut while it was written
        file.write(b'{"type":"turn","session":"s1","index":4,"app')
    finish = [sys.executable, "-m", "loadgen", "record", "--finish", str(record.out)]
    done = subprocess.run(finish, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "cut 44 bytes" in done.stdout
    with open_trace(record.out) as trace:
        assert trace.open_sessions() == []
        assert trace.turn_count("s1") == 4


def test_a_full_disk_stops_the_recording_and_not_the_agent(recorder: Start) -> None:
    def small_files() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (6000, 6000))
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)

    with Upstream(tools_then_text) as up:
        record = recorder(up.url, preexec_fn=small_files)
        messages = drive(record.url, "word " * 200)
        assert messages[-1]["content"] == "That is all."
        summary = record.stop()
    assert "cannot be written" in summary["stopped"]
    assert record.errors.count("recording stopped") == 1
    assert record.process.returncode == 0
    with open_trace(record.out) as trace:
        assert 1 <= trace.turn_count("s1") < 4


def test_max_size(recorder: Start) -> None:
    with Upstream(tools_then_text) as up:
        record = recorder(up.url, "--max-size", "2k")
        assert drive(record.url)[-1]["content"] == "That is all."
        summary = record.stop()
    assert "--max-size" in summary["stopped"]
    with open_trace(record.out) as trace:
        assert 1 <= trace.turn_count("s1") < 4


def test_no_secret_reaches_the_disk(recorder: Start) -> None:
    other = "ghp_" + "aB3dE6gH9jK2mN5pQ8sT1vW4yZ7cF0hJ3lM6"
    with Upstream(lambda seen: Say(f"your key is {KEY} and {other}")) as up:
        record = recorder(up.url + "/v1")
        client = openai.OpenAI(
            base_url=f"{record.url}/v1", api_key=KEY, organization="org-0123456789", max_retries=0
        )
        messages: list[Any] = [
            {
                "role": "user",
                "content": f"password='{other}' {KEY}\n-----BEGIN RSA PRIVATE KEY-----\nMIIEabcdef0123\n-----END RSA PRIVATE KEY-----",
            }
        ]
        client.chat.completions.create(model="m", messages=messages, user="someone")
        record.stop()
    written = record.out.read_bytes() + record.calls.read_bytes()
    for secret in (KEY, other, "org-0123456789", "MIIEabcdef0123"):
        assert secret.encode() not in written
    assert b"PRIVATE KEY" in written
    assert record.summary["secrets_replaced"] >= 3


def test_hash_only_holds_no_content(recorder: Start) -> None:
    with Upstream(tools_then_text) as up:
        record = recorder(up.url, "--hash-only", name="hashes.jsonl.zst")
        drive(record.url, "peculiar wording here")
        record.stop()
    with zstandard.open(record.out, "rb") as packed:
        plain = packed.read()
    assert b'"blocks"' in plain
    assert record.summary["turns"] == 4
    with open_trace(record.out) as trace:
        assert trace.header.fidelity == "blocks"
        turns = trace.turns("s1")
    sizes = [(turn.blocks.reuse, turn.blocks.new) for turn in turns if turn.blocks]
    assert len(sizes) == 4
    for (reuse, new), (next_reuse, _) in itertools.pairwise(sizes):
        assert next_reuse >= reuse + new  # the whole of each prompt comes back in the next
    written = plain + (record.out.parent / "hashes.calls.jsonl").read_bytes()
    for word in (b"peculiar", b"look", b"file0", b"call_0"):
        assert word not in written


def test_a_recording_takes_what_is_new(recorder: Start) -> None:
    """100 turns whose prompt grows to about 560 KB (140K tokens of 4 characters) stay under 5 MB."""
    big = "".join(f"line {i} of a file that is long\n" for i in range(15_000))

    with Upstream(lambda seen: Say("ok " * 20)) as up:
        record = recorder(up.url)
        client = openai.OpenAI(base_url=f"{record.url}/v1", api_key=KEY, max_retries=0)
        messages: list[Any] = [{"role": "user", "content": big}]
        for turn in range(100):
            answer = client.chat.completions.create(model="m", messages=messages).choices[0].message
            messages += [
                {"role": "assistant", "content": answer.content},
                {"role": "user", "content": f"{turn} more " * 30},
            ]
        summary = record.stop()
    sent = sum(len(seen.body) for seen in up.seen)
    assert summary["turns"] == 100
    assert sent > 45_000_000
    assert summary["bytes"] < 5_000_000


def test_command_mode_and_refusals(tmp_path: Path) -> None:
    loadgen = [sys.executable, "-m", "loadgen", "record"]

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*loadgen, *arguments], cwd=ROOT, capture_output=True, text=True, timeout=60)

    agent = "import os, urllib.request as u; print(u.urlopen(os.environ['OPENAI_BASE_URL'] + '/models').status); raise SystemExit(7)"
    with Upstream(lambda seen: Say("x")) as up:
        out = str(tmp_path / "a.jsonl")
        done = run("--upstream", up.url, "-o", out, "--", sys.executable, "-c", agent)
        assert (done.returncode, done.stdout.strip()) == (7, "200")
        again = run("--upstream", up.url, "-o", out)
        assert (again.returncode, "never overwrites" in again.stderr) == (2, True)
        port = up.url.rsplit(":", 1)[1]
        busy = run("--upstream", up.url, "-o", str(tmp_path / "b.jsonl"), "--port", port)
        assert (busy.returncode, "cannot listen" in busy.stderr) == (2, True)
    for arguments in (
        ("-o", out),
        ("--upstream", "ftp://x", "-o", str(tmp_path / "c.jsonl")),
        ("--upstream", "http://me:secret@x", "-o", str(tmp_path / "c.jsonl")),
        ("--upstream", "http://x", "-o", str(tmp_path / "none" / "c.jsonl")),
        ("--upstream", "http://x", "-o", str(tmp_path / "c.jsonl"), "--tokenizer", "nope"),
        ("--upstream", "http://x", "-o", str(tmp_path / "c.jsonl"), "--", "/no/such/agent"),
        ("--finish", str(tmp_path / "absent.jsonl")),
    ):
        bad = run(*arguments)
        assert bad.returncode == 2, (arguments, bad.stderr)
        assert bad.stderr.startswith("loadgen: ")
        assert "Traceback" not in bad.stderr
        assert "secret" not in bad.stderr
    assert json.loads(Path(out).read_text().splitlines()[0])["type"] == "trace"
