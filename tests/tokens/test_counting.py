"""Counting at a server: vLLM's way, llama.cpp's way, and none."""

from __future__ import annotations

from typing import Any

import pytest

from loadgen.errors import InputError
from loadgen.tokens.counting import Counting

CHAT: dict[str, Any] = {
    "messages": [{"role": "user", "content": "hi"}],
    "tools": [{"type": "function", "function": {"name": "f"}}],
    "add_generation_prompt": True,
}


class Vllm:
    """Every character is a token; a chat is rendered as its roles and contents."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    def __call__(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append(path)
        if path == "/detokenize":
            return {"prompt": "".join(map(chr, body["tokens"]))}
        text = body.get("prompt")
        if text is None:
            text = "".join(m["role"] + m["content"] for m in body["messages"])
        return {"count": len(text), "max_model_len": 4096, "tokens": [*map(ord, text)]}


class Llama:
    """As llama.cpp: `content` alone is read, whatever else there is."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, dict[str, Any]]] = []

    def __call__(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((path, body))
        if path == "/detokenize":
            return {"content": "".join(map(chr, body["tokens"]))}
        if path == "/apply-template":
            return {"prompt": "<s>" + "".join(m["content"] for m in body["messages"])}
        return {"tokens": [*map(ord, body.get("content", ""))]}


def test_vllm_is_asked_once() -> None:
    server = Vllm()
    counting = Counting("http://h", server)
    assert counting.ids({"prompt": "abc", "add_special_tokens": False}) == [97, 98, 99]
    assert len(counting.ids(CHAT)) == len("userhi")
    assert counting.ids({"prompt": "", "add_special_tokens": False}) == []
    assert counting.text([97, 98]) == "ab"
    assert server.asked == ["/tokenize", "/tokenize", "/tokenize", "/detokenize"]


def test_llama_cpp_renders_first_and_reads_special_tokens() -> None:
    server = Llama()
    counting = Counting("http://h", server)
    assert counting.ids({"prompt": "abc", "add_special_tokens": False}) == [97, 98, 99]
    assert counting.ids(CHAT) == [*map(ord, "<s>hi")]
    assert counting.text([97, 98]) == "ab"
    assert [path for path, _ in server.asked] == [
        "/tokenize",  # in vLLM's words, which it does not know
        "/tokenize",
        "/apply-template",
        "/tokenize",
        "/detokenize",
    ]
    assert server.asked[1][1] == {"content": "abc", "add_special": False, "parse_special": True}
    assert server.asked[2][1]["tools"] == CHAT["tools"]
    assert server.asked[3][1]["add_special"] is True


@pytest.mark.parametrize("answer", [{}, {"tokens": None}, {"tokens": []}])
def test_a_server_that_gives_no_ids_says_so(answer: dict[str, Any]) -> None:
    counting = Counting("http://h", lambda path, body: answer)
    with pytest.raises(InputError, match="http://h/tokenize gives no token ids"):
        counting.ids({"prompt": "abc"})
    with pytest.raises(InputError, match="http://h/detokenize gives no text"):
        counting.text([1])
