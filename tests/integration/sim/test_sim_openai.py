from __future__ import annotations

import json

import openai
import pytest
from simulated import Server

TOOLS = [
    {"type": "function", "function": {"name": "bash", "parameters": {"type": "object", "properties": {}}}}
]


@pytest.fixture
def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=server.url + "/v1", api_key="none", max_retries=0)


def test_models(client: openai.OpenAI, server: Server) -> None:
    models = list(client.models.list())
    assert [model.id for model in models] == [server.model]
    assert models[0].max_model_len == 262_144  # type: ignore[attr-defined]


def test_chat_streams_one_chunk_a_token_and_usage(client: openai.OpenAI, server: Server) -> None:
    stream = client.chat.completions.create(
        model=server.model,
        messages=[{"role": "user", "content": "hello there"}],
        max_tokens=20,
        stream=True,
        stream_options={"include_usage": True},
        extra_body={"ignore_eos": True, "return_token_ids": True},
    )
    chunks = list(stream)
    contents = [chunk.choices[0].delta.content for chunk in chunks if chunk.choices]
    assert contents[0] == ""
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len(contents) == 21
    assert all(contents[1:])
    assert chunks[-2].choices[0].finish_reason == "length"
    usage = chunks[-1].usage
    assert usage is not None
    assert usage.completion_tokens == 20
    assert usage.prompt_tokens_details is not None
    assert usage.prompt_tokens_details.cached_tokens == 0
    assert usage.prompt_tokens == len(chunks[0].prompt_token_ids)  # type: ignore[attr-defined]


def test_the_same_prompt_gets_the_same_answer_and_stops_by_itself(
    client: openai.OpenAI, server: Server
) -> None:
    def ask() -> tuple[str | None, str]:
        answer = client.chat.completions.create(
            model=server.model, messages=[{"role": "user", "content": "why?"}]
        )
        return answer.choices[0].message.content, answer.choices[0].finish_reason

    first = ask()
    assert first == ask()
    assert first[1] == "stop"


def test_a_tool_call_is_valid_json_and_its_result_gets_text(client: openai.OpenAI, server: Server) -> None:
    messages: list[dict[str, object]] = [{"role": "user", "content": "list the files"}]
    whole = client.chat.completions.create(model=server.model, messages=messages, tools=TOOLS, max_tokens=12)  # type: ignore[arg-type,call-overload]
    call = whole.choices[0].message.tool_calls[0]
    assert whole.choices[0].finish_reason == "tool_calls"
    assert call.function.name == "bash"
    assert "input" in json.loads(call.function.arguments)
    chunks = client.chat.completions.create(  # type: ignore[call-overload]
        model=server.model, messages=messages, tools=TOOLS, max_tokens=12, stream=True
    )
    fragments = [
        chunk.choices[0].delta.tool_calls[0].function.arguments
        for chunk in chunks
        if chunk.choices[0].delta.tool_calls
    ]
    assert "".join(part or "" for part in fragments) == call.function.arguments
    messages += [
        whole.choices[0].message.model_dump(),
        {"role": "tool", "tool_call_id": call.id, "content": "a.py"},
    ]
    after = client.chat.completions.create(model=server.model, messages=messages, tools=TOOLS, max_tokens=5)  # type: ignore[arg-type,call-overload]
    assert after.choices[0].message.content


def test_reasoning_comes_before_the_text(client: openai.OpenAI, server: Server) -> None:
    stream = client.chat.completions.create(
        model=server.model,
        messages=[{"role": "user", "content": "think"}],
        max_tokens=10,
        stream=True,
        extra_body={"chat_template_kwargs": {"enable_thinking": True}, "ignore_eos": True},
    )
    deltas = [chunk.choices[0].delta for chunk in stream][1:]
    kinds = ["think" if getattr(delta, "reasoning", None) else "text" for delta in deltas]
    assert kinds == ["think"] * 5 + ["text"] * 5


def test_completions_take_and_give_token_ids(client: openai.OpenAI, server: Server) -> None:
    text = client.completions.create(
        model=server.model, prompt="one two three", max_tokens=6, extra_body={"ignore_eos": True}
    )
    assert text.usage is not None
    assert text.usage.completion_tokens == 6
    ids = server.post("/tokenize", {"prompt": "one two three"}).json()["tokens"]
    exact = client.completions.create(
        model=server.model,
        prompt=ids,
        max_tokens=6,
        extra_body={"ignore_eos": True, "return_token_ids": True},
    )
    assert exact.choices[0].text == text.choices[0].text
    said = exact.choices[0].token_ids  # type: ignore[attr-defined]
    assert server.post("/detokenize", {"tokens": said}).json()["prompt"] == exact.choices[0].text


def test_responses(client: openai.OpenAI, server: Server) -> None:
    whole = client.responses.create(model=server.model, input="hello", max_output_tokens=8)
    assert whole.status == "incomplete"
    assert whole.usage is not None
    assert whole.usage.output_tokens == 8
    events = list(
        client.responses.create(model=server.model, input="hello", max_output_tokens=8, stream=True)
    )
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert (
        "".join(event.delta for event in events if event.type == "response.output_text.delta")
        == whole.output_text
    )
    assert events[-1].type == "response.completed"
    tools = [{"type": "function", "name": "bash", "parameters": {}}]
    called = client.responses.create(
        model=server.model, input="ls", tools=tools, tool_choice="required", max_output_tokens=9
    )  # type: ignore[arg-type]
    assert called.output[0].type == "function_call"
    thought = client.responses.create(
        model=server.model, input="ls", reasoning={"effort": "high"}, max_output_tokens=9
    )
    assert [item.type for item in thought.output] == ["reasoning", "message"]
    assert thought.usage is not None
    assert thought.usage.output_tokens_details.reasoning_tokens == 4


def test_errors_have_their_classes(client: openai.OpenAI, server: Server) -> None:
    with pytest.raises(openai.NotFoundError, match=r"The model `nope` does not exist\. Valid aliases"):
        client.chat.completions.create(model="nope", messages=[{"role": "user", "content": "x"}])
    with pytest.raises(openai.BadRequestError, match="cannot be greater than max_model_len"):
        client.chat.completions.create(
            model=server.model, messages=[{"role": "user", "content": "x"}], max_tokens=500_000
        )
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(
            model=server.model,
            messages=[{"role": "user", "content": "x"}],
            extra_headers={"X-Loadgen-Fault": "overloaded"},
        )
