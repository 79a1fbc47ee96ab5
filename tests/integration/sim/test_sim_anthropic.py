from __future__ import annotations

from typing import Any

import pytest
from simulated import Server

anthropic = pytest.importorskip("anthropic", reason="pip install loadgen[dev]")
TOOLS = [{"name": "bash", "input_schema": {"type": "object", "properties": {"input": {"type": "string"}}}}]


@pytest.fixture
def client(server: Server) -> Any:
    return anthropic.Anthropic(base_url=server.url, api_key="none", max_retries=0)


def test_a_stream_and_a_whole_answer_say_the_same(client: Any, server: Server) -> None:
    question: dict[str, Any] = {
        "model": server.model,
        "max_tokens": 12,
        "system": "be brief",
        "messages": [{"role": "user", "content": "hello"}],
    }
    whole = client.messages.create(**question)
    assert whole.stop_reason == "max_tokens"
    assert whole.usage.output_tokens == 12
    with client.messages.stream(**question) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text
    assert final.usage.output_tokens == 12
    counted = client.messages.count_tokens(
        model=server.model, system="be brief", messages=question["messages"]
    )
    assert counted.input_tokens == whole.usage.input_tokens == final.usage.input_tokens


def test_tool_use_and_its_result(client: Any, server: Server) -> None:
    messages: list[dict[str, Any]] = [{"role": "user", "content": "list the files"}]
    with client.messages.stream(model=server.model, max_tokens=10, messages=messages, tools=TOOLS) as stream:
        answer = stream.get_final_message()
    block = answer.content[0]
    assert (answer.stop_reason, block.type, block.name) == ("tool_use", "tool_use", "bash")
    assert block.input["input"]
    result = {"type": "tool_result", "tool_use_id": block.id, "content": [{"type": "text", "text": "a.py"}]}
    messages += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": [result]}]
    after = client.messages.create(model=server.model, max_tokens=10, messages=messages, tools=TOOLS)
    assert after.content[0].type == "text"


def test_thinking(client: Any, server: Server) -> None:
    answer = client.messages.create(
        model=server.model,
        max_tokens=2_000,
        thinking={"type": "enabled", "budget_tokens": 1024},
        messages=[{"role": "user", "content": "think"}],
    )
    assert [block.type for block in answer.content] == ["thinking", "text"]


def test_errors(client: Any, server: Server) -> None:
    with pytest.raises(anthropic.NotFoundError, match="does not exist"):
        client.messages.create(model="nope", max_tokens=1, messages=[{"role": "user", "content": "x"}])


def test_cached_tokens_are_no_input_tokens(client: Any, server: Server) -> None:
    question: dict[str, Any] = {
        "model": server.model,
        "max_tokens": 2,
        "messages": [{"role": "user", "content": "go " * 300 + "on"}],
    }
    cold = client.messages.create(**question).usage
    warm = client.messages.create(**question).usage
    assert cold.cache_read_input_tokens == 0
    assert warm.cache_read_input_tokens == (cold.input_tokens - 1) // 16 * 16
    assert warm.input_tokens + warm.cache_read_input_tokens == cold.input_tokens
