"""Agents cannot tell: SDKs see the same bytes with and without the recorder, and upstream sees the same requests."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import anthropic
import openai
import pytest
from record_process import KEY, Recorder
from record_tap import Answer, Tap
from record_upstream import Say, Seen, Upstream

from loadgen.trace.reader import open_trace

Start = Callable[..., Recorder]
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "look", "parameters": {"type": "object", "properties": {}}}}
]
USER: list[Any] = [{"role": "user", "content": "héllo ünïcode"}]


def script(seen: Seen) -> Say:
    text = seen.body.decode()
    if "fail 429" in text:
        return Say(status=429)
    if "fail 500" in text:
        return Say(status=500)
    if "slow" in text:
        return Say(text="one two three four five six seven eight", pause_s=0.05)
    if '"tools"' in text:
        return Say(text="I look.", thinking="hm well", calls=[("call_9", "look", {"path": "a b", "n": 1})])
    return Say(text="good dày to you", thinking="they greet me")


Scenario = Callable[[str], Any]


def openai_client(url: str, **options: Any) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{url}/v1", api_key=KEY, **({"max_retries": 0} | options))


def anthropic_client(url: str) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=url, api_key=KEY, max_retries=0)


def chat_whole(url: str) -> Any:
    return openai_client(url).chat.completions.create(model="m", messages=USER).model_dump()


def chat_stream(url: str) -> Any:
    stream = openai_client(url).chat.completions.create(
        model="m", messages=USER, tools=TOOLS, stream=True, stream_options={"include_usage": True}
    )
    return [chunk.model_dump() for chunk in stream]


def responses_stream(url: str) -> Any:
    return [
        event.model_dump()
        for event in openai_client(url).responses.create(model="m", input="hi", stream=True)
    ]


def messages_whole(url: str) -> Any:
    return anthropic_client(url).messages.create(model="m", max_tokens=9, messages=USER).model_dump()


def messages_stream(url: str) -> Any:
    stream = anthropic_client(url).beta.messages.create(
        model="m",
        max_tokens=9,
        messages=USER,
        stream=True,
        betas=["some-beta-2026"],
        tools=[{"name": "look", "input_schema": {"type": "object"}}],
    )
    return [event.model_dump() for event in stream]


def count_tokens(url: str) -> Any:
    return anthropic_client(url).messages.count_tokens(model="m", messages=USER).input_tokens


def models(url: str) -> Any:
    return [model.id for model in openai_client(url).models.list()]


def error_429(url: str) -> Any:
    try:
        openai_client(url).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "fail 429"}]
        )
    except openai.RateLimitError as error:
        return error.status_code, error.body
    raise AssertionError("no error")


def error_500_with_retries(url: str) -> Any:
    try:
        openai_client(url, max_retries=2).chat.completions.create(
            model="m", messages=[{"role": "user", "content": "fail 500"}]
        )
    except openai.InternalServerError as error:
        return error.status_code, error.body
    raise AssertionError("no error")


SCENARIOS: list[Scenario] = [
    chat_whole,
    chat_stream,
    responses_stream,
    messages_whole,
    messages_stream,
    count_tokens,
    models,
    error_429,
    error_500_with_retries,
]


def normal(text: object) -> str:
    """The scripted server numbers its answers."""
    return re.sub(r"(chatcmpl-|msg_|resp_|rs_)\d+", r"\1N", str(text))


def passed_on(headers: list[tuple[str, str]]) -> list[tuple[str, str]]:
    return [pair for pair in headers if pair[0].lower() not in ("host", "connection")]


def comparable(answer: Answer) -> tuple[int, str, list[tuple[str, str]], str]:
    one_hop_or_changing = ("transfer-encoding", "date", "x-number")
    headers = [pair for pair in answer.headers if pair[0].lower() not in one_hop_or_changing]
    return answer.status, answer.reason, headers, normal(answer.body)


def play(scenario: Scenario, target: str, up: Upstream) -> tuple[str, list[Answer], list[Seen]]:
    """What the SDK returned, what came over its socket, and what upstream got."""
    del up.seen[:]
    with Tap(target) as tap:
        result = normal(scenario(tap.url))
    return result, tap.answers(), list(up.seen)


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
def test_sdk_sees_the_same_bytes(scenario: Scenario, recorder: Start) -> None:
    with Upstream(script) as up:
        result, answers, sent = play(scenario, up.url, up)
        record = recorder(up.url)
        result_2, answers_2, sent_2 = play(scenario, record.url, up)
        record.stop()
    assert result == result_2
    assert answers
    assert [comparable(answer) for answer in answers] == [comparable(answer) for answer in answers_2]
    assert len(sent) == len(sent_2)
    for one, other in zip(sent, sent_2, strict=True):
        assert (one.method, one.target, one.body) == (other.method, other.target, other.body)
        assert passed_on(one.headers) == passed_on(other.headers)


@pytest.mark.parametrize("proxied", [False, True])
def test_abort_reaches_upstream(proxied: bool, recorder: Start) -> None:
    with Upstream(script) as up:
        record = recorder(up.url) if proxied else None
        messages: list[Any] = [{"role": "user", "content": "slow please"}]
        client = openai_client(record.url if record else up.url)
        stream = client.chat.completions.create(model="m", messages=messages, stream=True)
        words = [chunk.choices[0].delta.content for chunk, _ in zip(stream, range(3), strict=False)]
        stream.close()
        up.wait_idle()
        assert not up.seen[-1].finished
        assert words[:2] == ["", "one"]
        if record is not None:
            record.stop()
            (turn,) = record.records("turn")
            assert turn["stop"] == "aborted"
            assert turn["answer"]["content"].startswith("one")
            assert record.journal()[-1]["ending"] == "client_abort"


def test_an_aborted_first_turn_and_its_retry_are_attempts_of_one_turn(recorder: Start) -> None:
    with Upstream(script) as up:
        record = recorder(up.url)
        messages: list[Any] = [{"role": "user", "content": "slow please"}]
        client = openai_client(record.url)
        stream = client.chat.completions.create(model="m", messages=messages, stream=True)
        next(iter(stream))
        stream.close()
        up.wait_idle()
        answer = client.chat.completions.create(model="m", messages=messages).choices[0].message
        messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "and?"}]
        client.chat.completions.create(model="m", messages=messages)
        record.stop()
    turns = [(turn["index"], turn.get("attempt", 1), turn.get("stop")) for turn in record.records("turn")]
    assert turns == [(0, 1, "aborted"), (0, 2, "stop"), (1, 1, "stop")]
    assert record.summary["sessions"] == 1
    with open_trace(record.out) as trace:
        assert trace.turn_count("s1") == 2


@pytest.mark.parametrize("proxied", [False, True])
def test_unreachable_upstream_is_a_connection_error(proxied: bool, recorder: Start) -> None:
    with Upstream(script) as up:
        pass
    record = recorder(up.url) if proxied else None
    with pytest.raises(openai.APIConnectionError):
        chat_whole(record.url if record else up.url)
    if record is not None:
        assert record.stop()["failed"] == 1
        (line,) = record.journal()
        assert line["ending"] == "upstream_unreachable"
        assert "connect" in line["problems"][0].lower()
        assert record.records("turn") == []
