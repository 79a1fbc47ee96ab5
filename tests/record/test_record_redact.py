"""Secrets go, everything else stays, and token counts do not change."""

from __future__ import annotations

import argparse
import asyncio.base_events
import base64
import inspect
import json
import random
import socket
import string
import tarfile
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import tokens
from loadgen.record.redact import Redactor

TOKENIZER = tokens.get("tekken")
ALNUM = string.ascii_letters + string.digits


def drawn(seed: int, alphabet: str, length: int) -> str:
    return "".join(random.Random(seed).choices(alphabet, k=length))


def redactor(**options: Any) -> Redactor:
    return Redactor(TOKENIZER.count, **options)


MAKERS = {
    "openai": lambda seed: "sk-" + drawn(seed, ALNUM, 48),
    "anthropic": lambda seed: "sk-ant-api03-" + drawn(seed, ALNUM + "_-", 95),
    "github": lambda seed: "ghp_" + drawn(seed, ALNUM, 36),
    "github_pat": lambda seed: "github_pat_" + drawn(seed, ALNUM + "_", 60),
    "aws": lambda seed: "AKIA" + drawn(seed, string.ascii_uppercase + string.digits, 16),
    "slack": lambda seed: "xoxb-" + drawn(seed, string.digits, 12) + "-" + drawn(seed, ALNUM, 24),
    "google": lambda seed: "AIza" + drawn(seed, ALNUM + "_-", 35),
    "jwt": lambda seed: ".".join(
        base64.urlsafe_b64encode(part).decode().rstrip("=")
        for part in (
            b'{"alg":"HS256","typ":"JWT"}',
            b'{"sub":"%d"}' % seed,
            random.Random(seed).randbytes(32),
        )
    ),
}


@pytest.mark.parametrize("kind", MAKERS)
@settings(max_examples=20, deadline=None)
@given(
    seed=st.integers(0, 2**32), around=st.sampled_from(["key = '{}'\n", "({})", "a\\n{}\\n", '"{}"', "{}"])
)
def test_known_kinds_vanish_at_equal_token_count(kind: str, seed: int, around: str) -> None:
    secret = MAKERS[kind](seed)
    text = around.format(secret)
    clean = redactor().text(text)
    assert secret not in clean
    assert secret[len(secret) // 2 :] not in clean
    assert clean.startswith(around.split("{}")[0])
    assert clean.endswith(around.split("{}")[1])
    stand_in = clean[len(around.split("{}")[0]) : len(clean) - len(around.split("{}")[1])]
    assert TOKENIZER.count(stand_in) == TOKENIZER.count(secret)


def test_one_secret_one_stand_in_and_another_in_another_recording() -> None:
    secret = MAKERS["github"](1)
    first = redactor()
    assert first.text(secret) == first.text(secret)
    assert first.text(f"a {secret} b") == f"a {first.text(secret)} b"
    assert redactor().text(secret) != first.text(secret)
    assert first.found == 1


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("password=hunter22!", "hunter22!"),
        ("password: !!!!@@@@", "!!!!@@@@"),
        ('{"api_key": "q9w8e7r6"}', "q9w8e7r6"),
        ("Authorization: Bearer abcDEF0123456789xyz", "abcDEF0123456789xyz"),
        ("postgres://bob:s3cretpw@db/x", "s3cretpw"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIEowIBAAKCAQ\nqwertyASDFGH12\n-----END RSA PRIVATE KEY-----",
            "MIIEowIBAAKCAQ",
        ),
        ("token " + drawn(5, ALNUM + "+/", 40), drawn(5, ALNUM + "+/", 40)),
    ],
)
def test_secrets_by_their_surroundings_and_by_entropy(text: str, secret: str) -> None:
    clean = redactor().text(text)
    assert secret not in clean
    before, after = text.split(secret)[0], text.split(secret)[-1][-4:]
    assert clean.startswith(before)
    assert clean.endswith(after)


def test_code_and_identifiers_stay() -> None:
    """Source of the standard library, and what looks like a secret and is none."""
    texts = [
        inspect.getsource(module) for module in (argparse, asyncio.base_events, json.decoder, socket, tarfile)
    ]
    texts += [
        "commit 5f7f6c1a9b3e8d7c6f5a4b3c2d1e0f9a8b7c6d5e",
        "id 0b06cef3-5fb8-34de-0e37-66db68854b15",
        "password = get_password(user)",
        "api_key: str | None = None",
        "test_HTTPServer2_handlesRequest404AndReturnsError500",
        "/usr/local/lib/python3.11/site-packages/httpx/_transports/default.py",
        "x" * 5000,
    ]
    keeper = redactor()
    for text in texts:
        assert keeper.text(text) == text


def test_credential_headers_are_secret_wherever_they_appear() -> None:
    keeper = redactor()
    keeper.learn([("X-Api-Key", "plainwordkey"), ("Accept", "innocent-value")])
    clean = keeper.text("the key is plainwordkey and innocent-value")
    assert "plainwordkey" not in clean
    assert "innocent-value" in clean


def test_messages_keep_ids_and_valid_json() -> None:
    secret = MAKERS["openai"](7)
    call_id = "call_" + drawn(9, ALNUM, 30)
    arguments = json.dumps({"cmd": f"export K={secret}\nls", "n": 1})
    message = {
        "role": "assistant",
        "content": [{"type": "text", "text": secret}],
        "tool_calls": [
            {"id": call_id, "type": "function", "function": {"name": "sh", "arguments": arguments}}
        ],
        "raw": [{"type": "thinking", "thinking": "t", "signature": "c2ln" * 20}],
    }
    clean = redactor().message(message)
    assert secret not in json.dumps(clean)
    assert clean["tool_calls"][0]["id"] == call_id
    parsed = json.loads(clean["tool_calls"][0]["function"]["arguments"])
    assert parsed["cmd"].startswith("export K=")
    assert parsed["cmd"].endswith("\nls")
    signature = clean["raw"][0]["signature"]
    assert len(signature) == 80
    assert signature != "c2ln" * 20
    plain = {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": '{"a":  1}'}}],
    }
    assert redactor().message(plain) == plain


def test_personal_data_on_request() -> None:
    text = "mail bob.smith@example.org in /home/bobby/src and /Users/carol/x"
    assert redactor().text(text) == text
    clean = redactor(personal=True).text(text)
    for word in ("bob.smith", "example", "bobby", "carol"):
        assert word not in clean
    assert "/home/" in clean
    assert "/src and /Users/" in clean


def test_pseudonyms_are_equal_within_a_recording_only() -> None:
    keeper = redactor()
    assert keeper.pseudonym("id") == keeper.pseudonym("id") != keeper.pseudonym("other")
    assert keeper.pseudonym("id") != redactor().pseudonym("id")
