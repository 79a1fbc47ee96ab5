"""Types of the fields that are read, checked before anything is made of them; complaints as pydantic words them."""

from __future__ import annotations

from typing import Any

from loadgen.sim.http import errors

_KINDS: dict[str, tuple[type | tuple[type, ...], str, str]] = {
    "stream_options": (dict, "dict_type", "a valid dictionary"),
    "chat_template_kwargs": (dict, "dict_type", "a valid dictionary"),
    "kv_transfer_params": (dict, "dict_type", "a valid dictionary"),
    "thinking": (dict, "dict_type", "a valid dictionary"),
    "tools": (list, "list_type", "a valid list"),
    "tool_choice": ((str, dict), "string_type", "a valid string or dictionary"),
    "system": ((str, list), "string_type", "a valid string or list"),
    "cache_salt": (str, "string_type", "a valid string"),
}


def check(body: dict[str, Any]) -> None:
    """Raise vLLM's validation error for a known field of a wrong type."""
    for name, (kind, tag, wanted) in _KINDS.items():
        value = body.get(name)
        if value is not None and not isinstance(value, kind):
            raise errors.wrong_type(name, tag, wanted, value)
    for at, tool in enumerate(body.get("tools") or ()):
        if not isinstance(tool, dict):
            raise errors.wrong_type(f"tools.{at}", "dict_type", "a valid dictionary", tool)


def messages(found: Any, name: str = "messages") -> list[dict[str, Any]]:
    """A list of chat messages. Raises for one that is none."""
    if not isinstance(found, list):
        raise errors.wrong_type(name, "list_type", "a valid list", found)
    for at, message in enumerate(found):
        where = f"{name}.{at}"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise errors.wrong_type(where, "dict_type", "a valid dictionary with a role", message)
        if not isinstance(message.get("content"), str | list | None):
            raise errors.wrong_type(f"{where}.content", "string_type", "a valid string", message["content"])
        for key in ("reasoning", "reasoning_content"):
            if not isinstance(message.get(key), str | None):
                raise errors.wrong_type(f"{where}.{key}", "string_type", "a valid string", message[key])
        calls = message.get("tool_calls")
        if calls is not None and not (
            isinstance(calls, list) and all(isinstance(call, dict) for call in calls)
        ):
            raise errors.wrong_type(f"{where}.tool_calls", "list_type", "a valid list of calls", calls)
    return found


def name_of(choice: Any, key: str | None = None) -> str:
    """Function name of a tool or a tool choice, under `key` or at its top."""
    holder = choice.get(key) if key is not None else choice
    name = holder.get("name") if isinstance(holder, dict) else None
    if not isinstance(name, str):
        raise errors.wrong_type("tools", "dict_type", "a valid function tool", choice)
    return name
