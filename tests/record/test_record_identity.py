"""Who asks: every rule, in its order, with absent and odd values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from loadgen.record.identity import Identity, identify, retry_count, utility
from loadgen.record.nonce import normalise

UUID = "0b06cef3-5fb8-34de-0e37-66db68854b15"
USER_OLD = {"metadata": {"user_id": f"user_abc_account_def_session_{UUID}"}}
USER_NEW = {"metadata": {"user_id": json.dumps({"device_id": "d", "session_id": UUID})}}


@pytest.mark.parametrize(
    ("headers", "body", "expected"),
    [
        ({"X-Claude-Code-Session-Id": "S"}, USER_OLD, ("claude-code", "S", None, None)),
        ({"X-Claude-Code-Session-Id": "S", "x-claude-code-agent-id": "A"}, {}, ("claude-code", "S", "A", "")),
        (
            {
                "X-Claude-Code-Session-Id": "S",
                "x-claude-code-agent-id": "B",
                "X-Claude-Code-Parent-Agent-Id": "A",
            },
            {},
            ("claude-code", "S", "B", "A"),
        ),
        ({}, USER_OLD, ("metadata.user_id", UUID, None, None)),
        ({}, USER_NEW, ("metadata.user_id", UUID, None, None)),
        ({}, {"metadata": {"user_id": "somebody"}}, ("content", None, None, None)),
        ({"session_id": "S"}, {}, ("codex", "S", None, None)),
        ({"session-id": "S", "thread-id": "S"}, {}, ("codex", "S", None, None)),
        ({"session-id": "S", "thread-id": "T", "x-codex-parent-thread-id": "S"}, {}, ("codex", "S", "T", "")),
        (
            {
                "x-codex-turn-metadata": json.dumps(
                    {"session_id": "S", "thread_id": "U", "parent_thread_id": "T"}
                )
            },
            {},
            ("codex", "S", "U", "T"),
        ),
        ({"x-codex-turn-metadata": "no json"}, {}, ("content", None, None, None)),
        ({"X-Session-Affinity": "S"}, {"prompt_cache_key": "P"}, ("x-session-affinity", "S", None, None)),
        ({"x-session-id": "C", "x-parent-session-id": "S"}, {}, ("x-session-id", "S", "C", "")),
        ({"X-Roo-Task-ID": "S"}, {}, ("x-roo-task-id", "S", None, None)),
        ({}, {"prompt_cache_key": "P"}, ("prompt_cache_key", "P", None, None)),
        ({}, {"conversation": {"id": "C"}}, ("conversation", "C", None, None)),
        ({}, {"metadata": {"session_id": "M"}}, ("metadata.session_id", "M", None, None)),
        ({}, {"session_id": 7, "metadata": "odd"}, ("content", None, None, None)),
        ({"authorization": "Bearer k", "x-forwarded-for": "1.2.3.4"}, {}, ("content", None, None, None)),
    ],
)
def test_rules(headers: dict[str, str], body: dict[str, Any], expected: tuple[str, ...]) -> None:
    found = identify(list(headers.items()), body)
    assert (found.rule, found.conversation, found.agent, found.parent) == expected


def test_codex_says_what_a_request_is_for() -> None:
    headers = [("session-id", "S"), ("x-openai-subagent", "compact")]
    assert identify(headers, {}).kind == "compact"
    turn = [("x-codex-turn-metadata", json.dumps({"session_id": "S", "request_kind": "turn"}))]
    assert identify(turn, {}).kind is None


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        (("m", None, True, 1), "quota"),
        (("m", None, False, 64), "short"),
        (("m", None, True, 64), None),
        (("claude-haiku-5", None, False, 4000), "small_model"),
        (("claude-haiku-5", None, True, 4000), None),
        (("m", "You are a title generator. You output ONLY", False, 32000), "title"),
        (
            ("m", "an expert that generates concise, one-line Git commit messages", False, None),
            "commit_message",
        ),
        (("m", "You write code.", False, None), None),
    ],
)
def test_utility_calls(arguments: Any, expected: str | None) -> None:
    assert utility(*arguments, Identity(rule="content")) == expected


def test_prewarm_is_a_utility_call_even_with_tools() -> None:
    assert utility("m", None, True, None, Identity(rule="codex", kind="prewarm")) == "prewarm"


def test_retry_count_is_a_number_or_nothing() -> None:
    assert retry_count([("X-Stainless-Retry-Count", "2")]) == 2
    assert retry_count([("x-stainless-retry-count", "many")]) == 0
    assert retry_count([]) == 0


def test_nonce_is_zeroed_and_kept_aside() -> None:
    head = "x-anthropic-billing-header: cc_version=2.1.63.a43; cc_entrypoint=cli; cch=fa690;"
    system, nonce = normalise(head + "\nYou are Claude Code. cch=keep;")
    assert nonce == "fa690"
    assert system == head.replace("fa690", "00000") + "\nYou are Claude Code. cch=keep;"
    assert normalise("no header; cch=fa690;") == ("no header; cch=fa690;", None)
    assert normalise(None) == (None, None)
