from __future__ import annotations

import pytest

from loadgen.errors import InputError
from loadgen.replay.wire.headers import credentials, parse


def test_keys() -> None:
    assert credentials(None) == ()
    assert credentials("k") == (("Authorization", "Bearer k"),)
    assert credentials("k", scheme="BackendAI") == (("Authorization", "BackendAI k"),)
    assert dict(credentials("k", api="messages")) == {
        "Authorization": "Bearer k",
        "anthropic-version": "2023-06-01",
        "x-api-key": "k",
    }


@pytest.mark.parametrize("key", ["s3c ret", "s3cret\r\nX: 1", "s3crét", "s3cret\n"])
def test_a_key_that_no_header_can_hold_is_refused_and_not_repeated(key: str) -> None:
    with pytest.raises(InputError) as raised:
        credentials(key)
    assert "s3c" not in str(raised.value)


def test_lines() -> None:
    assert parse(["X-Team: kv", "X-Session:a b", "X-Empty:"]) == (
        ("X-Team", "kv"),
        ("X-Session", "a b"),
        ("X-Empty", ""),
    )


@pytest.mark.parametrize(
    "line", ["no colon", ": v", "X Y: v", "X: a\r\nY: b", "Host: a", "content-length: 3", "X: é"]
)
def test_lines_that_are_refused(line: str) -> None:
    with pytest.raises(InputError):
        parse([line])
