"""Who asks: conversation and agent of a request, from headers and body; the first rule that matches decides.

Header names change often, so every rule tolerates absence. Nothing here ever looks at the client's address or key.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec
import orjson

from loadgen.record.headers import Headers

_USER_ID_SESSION = re.compile(r"_session_([0-9a-f-]{36})")
_SESSION_HEADERS = (
    "x-session-id",
    "x-session-affinity",
    "x-opencode-session",
    "x-task-id",
    "x-roo-task-id",
    "x-litellm-session-id",
)
_SHORT_ANSWER_TOKENS = 64
_SMALL_TASK = re.compile(r"generat\w*[^.]{0,60}?\b(title|commit message)|\b(title) generator", re.IGNORECASE)
_TASK_WITHIN = 300  # characters from the start of a system prompt


class Identity(msgspec.Struct, kw_only=True, frozen=True):
    """`conversation` null: only the content tells. `agent` null: the conversation's main agent."""

    rule: str
    conversation: str | None = None
    agent: str | None = None
    parent: str | None = None  # the parent's agent id; "" is the main agent
    kind: str | None = None  # what the client calls the request: compaction, prewarm, title …


def identify(headers: Headers, body: dict[str, Any]) -> Identity:
    """Apply the rules to one request."""
    by_name = {name.lower().replace("_", "-"): value for name, value in reversed(headers)}
    return (
        _claude_code(by_name)
        or _anthropic_user(body)
        or _codex(by_name)
        or _session_header(by_name)
        or _body_fields(body)
        or Identity(rule="content")
    )


def utility(
    model: str, system: str | None, tools: bool, max_tokens: int | None, identity: Identity
) -> str | None:
    """Why a call is none of the agent's own turns (a title, a quota probe), or None when it is one."""
    if identity.kind in ("prewarm", "memory", "memory_consolidation", "title"):
        return identity.kind
    if max_tokens == 1:
        return "quota"
    if tools:
        return None
    if task := _SMALL_TASK.search((system or "")[:_TASK_WITHIN]):
        return (task[1] or task[2]).lower().replace(" ", "_")
    if max_tokens is not None and max_tokens <= _SHORT_ANSWER_TOKENS:
        return "short"
    return "small_model" if "haiku" in model.lower() else None


def retry_count(headers: Headers) -> int:
    """Which retry an SDK says this is; 0 is the first try."""
    value = next((value for name, value in headers if name.lower() == "x-stainless-retry-count"), "0")
    return int(value) if value.isdecimal() else 0


def _claude_code(headers: dict[str, str]) -> Identity | None:
    session = headers.get("x-claude-code-session-id")
    if not session:
        return None
    agent = headers.get("x-claude-code-agent-id")
    return Identity(
        rule="claude-code",
        conversation=session,
        agent=agent,
        parent=headers.get("x-claude-code-parent-agent-id", "") if agent else None,
    )


def _anthropic_user(body: dict[str, Any]) -> Identity | None:
    user = _dict(body.get("metadata")).get("user_id")
    if not isinstance(user, str):
        return None
    if found := _USER_ID_SESSION.search(user):
        return Identity(rule="metadata.user_id", conversation=found[1])
    session = _json(user).get("session_id")
    return Identity(rule="metadata.user_id", conversation=session) if isinstance(session, str) else None


def _codex(headers: dict[str, str]) -> Identity | None:
    turn = _json(headers.get("x-codex-turn-metadata", ""))
    thread = headers.get("thread-id") or _text(turn.get("thread_id"))
    session = headers.get("session-id") or _text(turn.get("session_id")) or thread
    if not session:
        return None
    parent = headers.get("x-codex-parent-thread-id") or _text(turn.get("parent_thread_id"))
    if parent is not None:
        parent = "" if parent == session else parent
    kind = headers.get("x-openai-subagent") or _text(turn.get("request_kind"))
    return Identity(
        rule="codex",
        conversation=session,
        agent=thread if thread != session else None,
        parent=parent,
        kind=None if kind == "turn" else kind,
    )


def _session_header(headers: dict[str, str]) -> Identity | None:
    found = next((name for name in _SESSION_HEADERS if headers.get(name)), None)
    if found is None:
        return None
    if parent := headers.get("x-parent-session-id"):  # opencode: a sub-agent has a session of its own
        return Identity(rule=found, conversation=parent, agent=headers[found], parent="")
    return Identity(rule=found, conversation=headers[found])


def _body_fields(body: dict[str, Any]) -> Identity | None:
    conversation = body.get("conversation")
    candidates = {
        "session_id": body.get("session_id"),
        "conversation": conversation.get("id") if isinstance(conversation, dict) else conversation,
        "prompt_cache_key": body.get("prompt_cache_key"),
        "litellm_session_id": body.get("litellm_session_id"),
        "metadata.session_id": _dict(body.get("metadata")).get("session_id"),
    }
    return next(
        (Identity(rule=rule, conversation=value) for rule, value in candidates.items() if _text(value)), None
    )


def _dict(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def _json(text: str) -> dict[str, Any]:
    try:
        return _dict(orjson.loads(text))
    except orjson.JSONDecodeError:
        return {}
