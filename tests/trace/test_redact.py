from __future__ import annotations

import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.trace.model import Header, Session, Turn
from loadgen.trace.reader import open_trace
from loadgen.trace.redact import Redactor, redact
from loadgen.trace.writer import TraceWriter
from tests.trace.conftest import answer, user


def count(text: str) -> int:
    """A tokenizer of runs of up to four letters, single digits and single other characters: uneven, like real ones."""
    return len(re.findall(r"[A-Za-z]{1,4}|\d|[^A-Za-z\d]", text))


SECRETS = [
    "sk-ant-api03-" + "aB3dE5gH7jK9mN1pQ2sT4vW6" * 2,
    "ghp_" + "aB3dE5gH7jK9mN1pQ2sT4vW6xY8zA0bC2dE4",
    "AKIAIOSFODNN7EXAMPLE",
    "xoxb-123456789012-abcdefABCDEF",
    "AIza" + "SyA1234567890abcdefghijklmnopqrstuv",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dozjgNryP4J3jVmNHl0w5N_XgL0n3I9PlFUP0THsR8U",
    "-----BEGIN RSA PRIVATE KEY-----\nMIIEpAIBAAKCAQEA7\nabc123\n-----END RSA PRIVATE KEY-----",
]


@pytest.mark.parametrize("secret", SECRETS)
def test_a_secret_goes_and_the_length_stays(secret: str) -> None:
    redactor = Redactor(count)
    text = f"export KEY={secret}; run it twice: {secret}"
    made = redactor.text(text)
    assert secret not in made
    assert secret[12:] not in made
    assert count(made) == count(text)
    assert redactor.inexact == 0
    assert redactor.found.total() == 2
    stand_ins = re.fullmatch(r"export KEY=(.*); run it twice: (.*)", made, re.S)
    assert stand_ins is not None
    assert stand_ins[1] == stand_ins[2]


@pytest.mark.parametrize(
    ("text", "secret"),
    [
        ("mysql --password=hunter2secret -u root", "hunter2secret"),
        ('{"password": "hunter2secret"}', "hunter2secret"),
        ("git clone https://bob:hunter2secret@example.org/x", "hunter2secret"),
        ("Authorization: Bearer abcdefghij0123456789", "abcdefghij0123456789"),
    ],
)
def test_secrets_in_their_places(text: str, secret: str) -> None:
    made = Redactor(count).text(text)
    assert secret not in made
    assert count(made) == count(text)


def test_personal_data_only_when_asked() -> None:
    text = "/home/alice/x by alice@example.org"
    assert Redactor(count).text(text) == text
    made = Redactor(count, personal=True).text(text)
    assert "alice" not in made
    assert made.startswith("/home/")
    assert count(made) == count(text)


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=200))
def test_text_without_secrets_is_left_alone(text: str) -> None:
    redactor = Redactor(count)
    made = redactor.text(text)
    assert made == text or redactor.found.total()


def test_a_trace_keeps_its_structure(tmp_path: Path) -> None:
    secret = SECRETS[0]
    with TraceWriter(tmp_path / "t.jsonl", Header(version=1, fidelity="messages")) as writer:
        writer.session(
            Session(id="a", system=writer.json_blob(f"key {secret}"), tools=writer.json_blob([{"d": secret}]))
        )
        call = {"id": "1", "type": "function", "function": {"name": "sh", "arguments": f'{{"k":"{secret}"}}'}}
        writer.turn(
            Turn(
                session="a",
                index=0,
                append=[user(f"use {secret}")],
                answer={**answer(""), "tool_calls": [call]},
            )
        )
        writer.turn(
            Turn(
                session="a",
                index=1,
                append=[{"role": "user", "content": {"blob": writer.json_blob(f"again {secret}")}}],
            )
        )
    with open_trace(tmp_path / "t.jsonl") as trace:
        redactor = Redactor(count)
        redact(trace, tmp_path / "r.jsonl", redactor)
        before = trace.turns("a")
    assert secret not in (tmp_path / "r.jsonl").read_text()
    assert redactor.found["API key"] == 5
    with open_trace(tmp_path / "r.jsonl") as again:
        after = again.turns("a")
        assert [t.index for t in after] == [t.index for t in before]
        assert again.header.made == {"redacted": True}
        first = (after[0].append or [])[0]["content"]
        assert count(first) == count(f"use {secret}")
