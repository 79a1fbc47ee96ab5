from __future__ import annotations

import pytest

from loadgen.errors import InputError
from loadgen.replay.wire.target import Target


@pytest.mark.parametrize(
    ("text", "url", "host", "chat"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "127.0.0.1:8000", "/v1/chat/completions"),
        ("http://127.0.0.1:8000/v1", "http://127.0.0.1:8000", "127.0.0.1:8000", "/v1/chat/completions"),
        ("http://127.0.0.1:8000/v1/", "http://127.0.0.1:8000", "127.0.0.1:8000", "/v1/chat/completions"),
        ("127.0.0.1:8000", "http://127.0.0.1:8000", "127.0.0.1:8000", "/v1/chat/completions"),
        ("localhost:8000/v1", "http://localhost:8000", "localhost:8000", "/v1/chat/completions"),
        ("https://api.example.com/v1", "https://api.example.com", "api.example.com", "/v1/chat/completions"),
        ("https://Gate.example.com/team/llm/v1", "https://gate.example.com/team/llm", "gate.example.com", "/team/llm/v1/chat/completions"),
        ("http://[::1]:80", "http://[::1]", "[::1]", "/v1/chat/completions"),
        (" http://bücher.example ", "http://xn--bcher-kva.example", "xn--bcher-kva.example", "/v1/chat/completions"),
    ],
)  # fmt: skip
def test_addresses(text: str, url: str, host: str, chat: str) -> None:
    target = Target.parse(text)
    assert (target.url, target.host_header, target.path("/v1/chat/completions")) == (url, host, chat)
    assert Target.parse(target.url) == target


@pytest.mark.parametrize(
    "text",
    ["", "http://", "ftp://a", "http://a:99999", "http://a:b", "http://a/v1?x=1", "http://a#b", "http://a b", "http://[::1", "http://a/\r\nX: 1", "http://a/ü"],
)  # fmt: skip
def test_nonsense_is_refused_with_a_sentence(text: str) -> None:
    with pytest.raises(InputError) as raised:
        Target.parse(text)
    assert "\n" not in str(raised.value)


def test_credentials_are_refused_and_not_repeated() -> None:
    with pytest.raises(InputError) as raised:
        Target.parse("http://me:s3cr3t@host/v1")
    assert "s3cr3t" not in str(raised.value)
