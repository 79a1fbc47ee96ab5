"""Bytes, errors and faults as a client without an SDK sees them."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from simulated import SAMPLES, Server, stop

CHAT = "/v1/chat/completions"


def body(server: Server, **more: Any) -> dict[str, Any]:
    return {
        "model": server.model,
        "messages": [{"role": "user", "content": "hi"}],
        "max_tokens": 6,
        "ignore_eos": True,
        **more,
    }


def stream(server: Server, fault: str | None = None, **more: Any) -> bytes:
    headers = {"X-Loadgen-Fault": fault} if fault else {}
    options = {"stream": True, "stream_options": {"include_usage": True}}
    return server.post(CHAT, body(server, **options, **more), headers=headers).content


def events(raw: bytes) -> list[Any]:
    return [json.loads(line[6:]) for line in raw.split(b"\n") if line.startswith(b"data: {")]


def shape(value: Any) -> Any:
    """Keys and types of a JSON value, lists by their first element."""
    if isinstance(value, dict):
        return {key: shape(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [shape(value[0])] if value and not isinstance(value[0], int) else []
    return type(value).__name__


@pytest.mark.parametrize(
    ("sent", "status", "error"),
    [
        ({"messages": []}, 400, {"type": "BadRequestError", "param": None, "message": "Cannot apply chat template to an empty conversation. Provide at least one message."}),
        ({"messages": "hi"}, 400, {"type": "Bad Request", "param": "body.messages", "message": "1 validation error:\n  {'type': 'list_type', 'loc': 'body.messages', 'msg': 'Input should be a valid list', 'input': 'hi'}"}),
        ({"messages": None}, 400, {"type": "Bad Request", "param": "body.messages"}),
        ({"temperature": -1}, 400, {"type": "BadRequestError", "param": "temperature", "message": "temperature must be non-negative, got -1.0. (parameter=temperature, value=-1.0)"}),
        ({"model": "nope"}, 404, {"type": "NotFoundError", "param": "model"}),
        ({"max_tokens": 500_000}, 400, {"type": "BadRequestError", "param": "max_tokens", "message": "max_tokens=500000 cannot be greater than max_model_len=262144. Please request fewer output tokens. (parameter=max_tokens, value=500000)"}),
        ({"max_tokens": "many"}, 400, {"type": "Bad Request", "param": "body.max_tokens"}),
        ({"max_tokens": 0}, 400, {"type": "BadRequestError", "param": "max_tokens"}),
        ({"stream_options": {"include_usage": True}}, 400, {"type": "BadRequestError", "param": "stream_options", "message": "Stream options can only be defined when `stream=True`. (parameter=stream_options)"}),
        ({"cache_salt": ""}, 400, {"type": "BadRequestError", "param": "cache_salt"}),
        ({"n": 2}, 400, {"type": "BadRequestError", "param": "n"}),
        ({"messages": [7]}, 400, {"type": "Bad Request"}),
        ({"kv_transfer_params": 7}, 400, {"type": "Bad Request"}),
    ],
)  # fmt: skip
def test_errors_are_vllms(server: Server, sent: dict[str, Any], status: int, error: dict[str, Any]) -> None:
    answer = server.post(CHAT, body(server, **sent))
    assert answer.status_code == status
    found = answer.json()["error"]
    assert found["code"] == status
    assert error.items() <= found.items()


def test_a_prompt_that_is_too_long_is_json_even_when_it_streams(server: Server) -> None:
    answer = server.post(
        CHAT, body(server, stream=True, messages=[{"role": "user", "content": "a b " * 200_000}])
    )
    assert answer.status_code == 400
    assert answer.headers["content-type"].startswith("application/json")
    error = answer.json()["error"]
    assert error["param"] == "input_tokens"
    assert error["message"].startswith(
        "This model's maximum context length is 262144 tokens. However, your prompt contains"
    )


def test_bodies_that_are_no_json_and_routes_that_are_none(server: Server) -> None:
    headers = {"content-type": "application/json"}
    broken = httpx.post(server.url + CHAT, content=b'{"model": "x", "messages": [', headers=headers)
    assert broken.status_code == 400
    assert "json_invalid" in broken.json()["error"]["message"]
    assert broken.json()["error"]["type"] == "Bad Request"
    assert "Unsupported Media Type" in httpx.post(server.url + CHAT, content=b"hi").json()["error"]["message"]
    assert httpx.post(server.url + CHAT, content=b"[1]", headers=headers).status_code == 400
    assert httpx.get(server.url + "/nowhere").json() == {"detail": "Not Found"}
    assert httpx.get(server.url + CHAT).status_code == 405
    assert (
        server.post(
            "/v1/messages", {"model": "nope", "messages": [{"role": "user", "content": "x"}], "max_tokens": 1}
        ).json()["type"]
        == "error"
    )
    assert server.post("/v1/messages", {"messages": []}).json()["error"]["param"] == "body.max_tokens"
    assert (
        server.post("/v1/completions", {"model": server.model, "prompt": [10**6]}).json()["error"]["message"]
        == "Token id 1000000 is out of vocabulary"
    )
    assert server.post("/detokenize", {"tokens": [-5]}).status_code == 400


def test_every_answer_is_marked_as_simulated(server: Server) -> None:
    for answer in (
        httpx.get(server.url + "/health"),
        httpx.get(server.url + "/nowhere"),
        server.post(CHAT, body(server)),
    ):
        assert answer.headers["x-loadgen-simulated"] == "blog/offload"
        assert float(answer.headers["x-loadgen-time-scale"]) == 200


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="vLLM's recorded answers are not here")
def test_streams_have_the_shape_of_vllms(server: Server) -> None:
    def same(sample: str, ours: list[Any], first: int = 0) -> None:
        theirs = events((SAMPLES / sample).read_bytes())
        assert [shape(event) for event in ours[first:2]] == [shape(event) for event in theirs[first:2]]
        assert [shape(event) for event in ours[-2:]] == [shape(event) for event in theirs[-2:]]

    same("chat_stream.sse", events(stream(server)))
    same("chat_stream_token_ids.sse", events(stream(server, return_token_ids=True)))
    same("chat_stream_no_usage.sse", events(server.post(CHAT, body(server, stream=True)).content))
    usage = {"include_usage": True, "continuous_usage_stats": True}
    same(
        "chat_stream_continuous_usage.sse",
        events(server.post(CHAT, body(server, stream=True, stream_options=usage)).content),
    )
    words = {
        "model": server.model,
        "prompt": "a b c",
        "max_tokens": 2,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    same("completions_stream.sse", events(server.post("/v1/completions", words).content))
    same("messages_stream.sse", events(server.post("/v1/messages", body(server, stream=True)).content))
    asked = {"model": server.model, "input": "hi", "max_output_tokens": 4}
    same("responses_stream.sse", events(server.post("/v1/responses", {**asked, "stream": True}).content))
    pairs = {
        "chat_nonstream.json": server.post(CHAT, body(server)).json(),
        "messages_nonstream.json": server.post("/v1/messages", body(server)).json(),
        "responses_nonstream.json": server.post("/v1/responses", asked).json(),
        "models.json": httpx.get(server.url + "/v1/models").json(),
        "tokenize_chat.json": server.post(
            "/tokenize", {"messages": [{"role": "user", "content": "hi"}]}
        ).json(),
        "count_tokens.json": server.post("/v1/messages/count_tokens", body(server)).json(),
        "load.json": httpx.get(server.url + "/load").json(),
        "version.json": httpx.get(server.url + "/version").json(),
    }
    for name, ours in pairs.items():
        assert shape(ours) == shape(json.loads((SAMPLES / name).read_bytes())), name


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="vLLM's recorded answers are not here")
def test_metrics_have_vllms_names_and_labels(server: Server) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    theirs = {
        family.name: {
            tuple(sorted(sample.labels)) for sample in family.samples if not sample.name.endswith("_bucket")
        }
        for family in text_string_to_metric_families((SAMPLES / "metrics.txt").read_text())
    }
    ours = [
        family
        for family in text_string_to_metric_families(httpx.get(server.url + "/metrics").text)
        if family.name.startswith("vllm:") and not family.name.endswith("_created")
    ]
    assert len(ours) > 20
    for family in ours:
        if family.name == "vllm:cache_config_info":
            assert set(family.samples[0].labels) <= set(next(iter(theirs[family.name])))
            continue
        labels = {tuple(sorted(s.labels)) for s in family.samples if not s.name.endswith("_bucket")}
        assert labels == theirs[family.name], family.name


def test_cached_tokens_and_counters_agree(launch: Callable[..., Server]) -> None:
    server = launch("--scale", "500")
    text = "word " * 3_000 + "end"
    first = server.chat(text, max_tokens=3)["usage"]
    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    again = server.chat(text, max_tokens=3)["usage"]
    tokens = again["prompt_tokens"]
    local = (tokens - 1) // 16 * 16
    assert again["prompt_tokens_details"]["cached_tokens"] == local
    salted = server.chat(text, max_tokens=3, cache_salt="new")["usage"]
    external = tokens // 256 * 256
    assert salted["prompt_tokens_details"]["cached_tokens"] == external
    tagged = server.chat(
        text, max_tokens=3, cache_salt="newer", kv_transfer_params={"lmcache.tag.run": "r1"}
    )["usage"]
    assert tagged["prompt_tokens_details"]["cached_tokens"] == 0
    assert server.metric("vllm:prefix_cache_queries_total") == 4 * tokens
    assert server.metric("vllm:prefix_cache_hits_total") == local
    assert server.metric("vllm:external_prefix_cache_queries_total") == 4 * tokens - local
    assert server.metric("vllm:external_prefix_cache_hits_total") == external
    by_source = "vllm:prompt_tokens_by_source_total"
    assert server.metric(by_source, source="local_compute") == 4 * tokens - local - external
    assert server.metric(by_source, source="external_kv_transfer") == external
    assert server.metric("vllm:generation_tokens_total") == 12
    assert server.metric("vllm:request_success_total", finished_reason="length") == 4
    assert server.metric("vllm:time_to_first_token_seconds_count") == 4
    assert server.metric("loadgen_sim_tokens_total") == 12
    assert server.metric("loadgen_sim_tier_written_bytes_total") == external * 360_448 * 2
    assert server.metric("loadgen_sim_tier_read_bytes_total") == external * 360_448
    assert server.post("/reset_prefix_cache", {}).json() == {"success": True}
    after = server.chat(text, max_tokens=3)["usage"]
    assert after["prompt_tokens_details"]["cached_tokens"] == external, "LMCacheConnectorV1 has no reset"


def test_token_counts_add_up_and_history_is_a_prefix(server: Server) -> None:
    def ids(*messages: tuple[str, str], **more: Any) -> list[int]:
        sent = [{"role": role, "content": text} for role, text in messages]
        return server.post("/tokenize", {"messages": sent, **more}).json()["tokens"]

    a, b = "def f(): return 1", "12345678\nclass C:\n    pass"
    one, two = (len(server.post("/tokenize", {"prompt": text}).json()["tokens"]) for text in (a, b))
    assert len(ids(("user", a))) == one + 4
    assert len(ids(("user", a), ("assistant", b))) == one + two + 6
    first = ids(("system", "s"), ("user", a))
    assert ids(("system", "s"), ("user", a), ("assistant", b), ("user", a))[: len(first)] == first


@pytest.mark.parametrize("fault", ["reset", "truncated"])
def test_broken_connections(server: Server, fault: str) -> None:
    with pytest.raises(httpx.TransportError):
        stream(server, fault)


def test_faults_inside_a_stream(server: Server) -> None:
    malformed = stream(server, "malformed")
    with pytest.raises(json.JSONDecodeError):
        events(malformed)
    failed = events(stream(server, "error"))
    assert failed[-1]["error"]["code"] == 500
    empty = events(stream(server, "empty"))
    assert [event["choices"] for event in empty] == [[]]
    assert empty[0]["usage"]["completion_tokens"] == 0
    wrong = events(stream(server, "wrong_usage"))[-1]["usage"]
    assert wrong["completion_tokens"] == 7
    busy = server.post(CHAT, body(server), headers={"X-Loadgen-Fault": '{"kind":"overloaded","seconds":7}'})
    assert (busy.status_code, busy.headers["retry-after"]) == (429, "7")
    assert server.post(CHAT, body(server), headers={"X-Loadgen-Fault": "unavailable"}).status_code == 503
    assert server.post(CHAT, body(server), headers={"X-Loadgen-Fault": "nonsense"}).status_code == 400
    assert len(events(stream(server))) == 8, "the server lives on"


@pytest.mark.parametrize(("fault", "least"), [("stall", 1.0), ("slow_start", 1.0)])
def test_slow_faults_lose_nothing(server: Server, fault: str, least: float) -> None:
    request = json.dumps({"kind": fault, "seconds": 200 * least})
    answer = server.post(CHAT, body(server, stream=True), headers={"X-Loadgen-Fault": request})
    assert answer.elapsed.total_seconds() >= least
    assert len(events(answer.content)) == 7


def test_bursts_hold_tokens_together(server: Server) -> None:
    chunks = []
    request = json.dumps({"kind": "burst", "seconds": 40})
    sent = body(server, stream=True, max_tokens=600)
    with httpx.stream(
        "POST", server.url + CHAT, json=sent, headers={"X-Loadgen-Fault": request}, timeout=30
    ) as answer:
        for chunk in answer.iter_raw():
            chunks.append(chunk)
    assert len(events(b"".join(chunks))) == 601
    assert len(chunks) < 60


def test_a_faults_file_is_dealt_out_by_count(launch: Callable[..., Server], tmp_path: Path) -> None:
    file = tmp_path / "faults.toml"
    file.write_text('[[fault]]\nkind = "unavailable"\nevery = 3\nskip = 1\n')
    server = launch("--scale", "500", "--faults", str(file))
    assert [server.post(CHAT, body(server)).status_code for _ in range(7)] == [
        200,
        200,
        200,
        503,
        200,
        200,
        503,
    ]


def test_a_client_that_leaves_frees_its_seat(server: Server) -> None:
    before = server.metric("vllm:num_requests_running")
    with httpx.stream(
        "POST", server.url + CHAT, json=body(server, stream=True, max_tokens=200_000), timeout=30
    ) as answer:
        chunks = answer.iter_raw()
        next(chunks)
        assert server.metric("vllm:num_requests_running") == before + 1
    for _ in range(1_000):
        if server.metric("vllm:num_requests_running") == before:
            break
    assert server.metric("vllm:num_requests_running") == before


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--profile", "nope"], "no profile"),
        (["--arm", "nope"], "has no arm 'nope'; it has off, offload"),
        (["--scale", "0"], "--scale must be a number above 0"),
        (["--scale", "nan"], "--scale must be a number above 0"),
        (["--port", "99999"], "--port must be between"),
        (["--faults", "/nowhere"], "cannot read faults file"),
        (["--tokenizer", "nope"], "tokenizer"),
    ],
)
def test_bad_arguments_are_one_sentence(arguments: list[str], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "loadgen", "sim", *arguments], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2
    assert words in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_port_in_use_is_one_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = subprocess.run(
            [sys.executable, "-m", "loadgen", "sim", "--port", port],
            capture_output=True,
            text=True,
            timeout=30,
        )
    assert done.returncode == 2
    assert (
        done.stderr
        == f"loadgen: cannot listen on 127.0.0.1:{port}: Address already in use; choose another --port (0 takes a free one)\n"
    )


def test_sigterm_in_the_middle_of_a_stream_ends_it_with_code_0(launch: Callable[..., Server]) -> None:
    server = launch()
    with httpx.stream(
        "POST", server.url + CHAT, json=body(server, stream=True, max_tokens=5_000), timeout=30
    ) as answer:
        chunks = answer.iter_raw()
        next(chunks)
        assert stop(server) == 0


NASTY = [None, 0, -1, 1.5, True, "", "x", [], {}, [1], [None], [{}], {"a": 1}, [[1]], 10**30]
FIELDS = (
    "model", "messages", "prompt", "input", "max_tokens", "max_output_tokens", "min_tokens", "temperature", "stream_options",
    "tools", "tool_choice", "cache_salt", "kv_transfer_params", "seed", "chat_template_kwargs", "thinking", "reasoning", "system", "tokens",
)  # fmt: skip
PATHS = (
    CHAT,
    "/v1/completions",
    "/v1/responses",
    "/v1/messages",
    "/v1/messages/count_tokens",
    "/tokenize",
    "/detokenize",
)


@pytest.mark.parametrize("path", PATHS)
def test_nothing_a_client_sends_is_an_internal_error(server: Server, path: str) -> None:
    good = {
        "model": server.model, "messages": [{"role": "user", "content": "hi"}], "prompt": "hi", "input": "hi",
        "max_tokens": 2, "max_output_tokens": 2, "tokens": [1000],
    }  # fmt: skip
    bodies: list[Any] = [{**good, field: value} for field in FIELDS for value in NASTY]
    for value in NASTY:
        for message in (
            {"role": "user", "content": value}, {"role": value, "content": "x"}, {"role": "assistant", "tool_calls": value},
            {"role": "assistant", "reasoning": value}, {"role": "user", "content": [{"type": "tool_result", "content": value}]},
            {"type": "function_call_output", "output": value}, {"type": "reasoning", "content": value},
        ):  # fmt: skip
            bodies.append({**good, "messages": [message], "input": [message]})
        bodies.append({**good, "tools": [value], "tool_choice": "required"})
    with httpx.Client(timeout=30) as client:
        for sent in bodies:
            answer = client.post(server.url + path, json=sent)
            assert answer.status_code < 500, (sent, answer.text)
