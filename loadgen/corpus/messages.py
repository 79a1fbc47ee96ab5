"""Contexts in message form: system prompt, tool definitions, a task, then tool calls and their results.

The file of a context is `{"system": …, "tools": […], "messages": […]}` in compact JSON. Its count is the sum over
system prompt, each tool's JSON, each message's content and each call's name and arguments, plus what the endpoint's
template was measured to put between them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from itertools import chain
from typing import Any

import msgspec
import orjson

from loadgen.corpus.agent import Agent, session_digest, task, tool_line
from loadgen.corpus.composed import Composed, Conversation, Rendering, Shared, exactly
from loadgen.corpus.exact import Filler, Piece, cut
from loadgen.corpus.library import framed
from loadgen.errors import InputError
from loadgen.tokens.base import Tokenizer

Message = dict[str, Any]


def read(data: bytes) -> Conversation:
    """Decode the file of a context in message form. Raises InputError when it is none."""
    try:
        return msgspec.json.decode(data, type=Conversation)
    except msgspec.DecodeError as error:
        raise InputError(f"this is not a context in message form: {error}") from None


def parts(conversation: Conversation) -> Iterator[str]:
    """All texts of a conversation that a template renders: system prompt, tools, then message by message."""
    if conversation.system:
        yield conversation.system
    yield from map(tool_line, conversation.tools)
    yield from _message_parts(conversation.messages)


def _message_parts(messages: list[Message]) -> Iterator[str]:
    for message in messages:
        if message["content"]:
            yield message["content"]
        for call in message.get("tool_calls", ()):
            yield call["function"]["name"]
            yield call["function"]["arguments"]


def count(tokenizer: Tokenizer, conversation: Conversation) -> int:
    """Tokens of all parts, without the template's."""
    return sum(map(tokenizer.count, parts(conversation)))


class MessagesComposer:
    """Makes one context in message form of `tokens` tokens, the template of `rendering` included."""

    suffix = ".messages.json"

    def __init__(
        self,
        filler: Filler,
        agent: Agent,
        *,
        seed: int,
        tokens: int,
        rendering: Rendering | None = None,
    ) -> None:
        self._filler = filler
        self._tokenizer = filler.tokenizer
        self._agent = agent
        self._seed = seed
        self._tokens = tokens
        self._rendering = rendering

    def compose(self, index: int, shared: Shared | None, files: Iterator[Piece]) -> Composed | None:
        """Context `index` with `files` in this order; None when they are too few."""
        digest = session_digest(self._seed, index)

        def once(files: Iterator[Piece], tokens: int, skip: int) -> Composed | None:
            return self._compose(digest, shared, files, tokens, skip)

        return exactly(self._tokens, files, once, self._rendering)

    def _compose(
        self, digest: str, shared: Shared | None, files: Iterator[Piece], tokens: int, skip: int
    ) -> Composed | None:
        piece = next(files, None)
        if piece is None:
            return None
        conversation = self._start(digest, shared, piece.source)
        content = count(self._tokenizer, conversation)
        used: list[str] = []
        while content + self._overhead(conversation) < tokens:
            if piece is None:
                return None
            exchange = tool_exchange(
                f"{digest}{len(used)}", "read_file", {"path": piece.source}, piece.text.rstrip()
            )
            conversation.messages += exchange
            used.append(piece.source)
            content += self._count(exchange)
            piece = next(files, None)
        if not self._cut_last(conversation, used, content, tokens, skip):
            raise InputError(
                f"{tokens:,} tokens are too few for system prompt, tools, tree and task in message form; ask for more tokens"
            )
        data = orjson.dumps(msgspec.to_builtins(conversation))
        return Composed(
            data, tokens - self._overhead(conversation), self._front(conversation), used, conversation
        )

    def _start(self, digest: str, shared: Shared | None, path: str) -> Conversation:
        if shared is None:
            system = f"{digest} is the id of this session.\n{self._agent.system}".rstrip()
        else:
            system = shared.text
        tools = self._tools(shared.group if shared else digest)
        messages: list[Message] = [{"role": "user", "content": f"{digest}: {task(digest, path)}"}]
        if self._agent.tree and shared is None:
            messages += tool_exchange(digest, "list_files", {"path": "."}, self._agent.tree)
        return Conversation(system, tools, messages)

    def _tools(self, mark: str) -> list[dict[str, Any]]:
        """The agent's tools with `mark` in the first one: some templates put the tools in front of the system prompt."""
        if not self._agent.tools:
            return []
        first, *others = self._agent.tools
        function = first["function"]
        return [
            {**first, "function": {**function, "description": f"({mark}) {function['description']}"}},
            *others,
        ]

    def _overhead(self, conversation: Conversation) -> int:
        return self._rendering.overhead(conversation) if self._rendering else 0

    def _cut_last(
        self, conversation: Conversation, used: list[str], content: int, tokens: int, skip: int
    ) -> bool:
        """Shorten the last result so that the whole has `tokens` tokens; False when the files do not reach that far.

        `content`: tokens of all parts. A last exchange of which nothing would be left goes, and the beginning of its
        result fills up the one before.
        """
        messages = conversation.messages
        while used:
            result = messages[-1]
            own = self._tokenizer.count(result["content"])
            room = own + tokens - content - self._overhead(conversation)
            end = cut(self._tokenizer, result["content"], room, skip=skip) if room > 0 else None
            if end is not None:
                result["content"] = end
                return True
            content -= self._count(messages[-2:])
            del messages[-2:]
            used.pop()
            content -= self._count(messages[-1:])
            messages[-1]["content"] += "\n" + result["content"]
            content += self._count(messages[-1:])
        return False

    def _count(self, messages: list[Message]) -> int:
        return sum(map(self._tokenizer.count, _message_parts(messages)))

    def _front(self, conversation: Conversation) -> list[int]:
        front: list[int] = []
        for part in parts(conversation):
            front += self._tokenizer.encode(part)
            if len(front) >= self._filler.front:
                break
        return front[: self._filler.front]

    def share(self, group: str, tokens: int, files: Iterator[Piece]) -> Shared | None:
        """System prompt with so many files as project notes that it and the tools have `tokens` tokens."""
        tools = sum(self._tokenizer.count(tool_line(tool)) for tool in self._tools(group))
        if tokens - tools < 64:
            raise InputError(
                f"prompt.shared_tokens: the tools alone take {tools:,} of {tokens:,} tokens; raise it or set prompt.tools to false"
            )
        start = f"{group} is what these sessions have in common.\n{self._agent.system}\n\n# Project notes\n\n"
        if self._agent.tree:
            start += f"{self._agent.tree}\n\n"
        notes = (Piece(piece.source, framed(piece.source, piece.text)) for piece in files)
        filled = self._filler.fill(chain([Piece("", start)], notes), tokens - tools)
        return (
            None
            if filled is None
            else Shared(group, filled.text, tokens, [path for path in filled.used if path])
        )


def tool_exchange(key: str, tool: str, arguments: dict[str, Any], result: str) -> list[Message]:
    """A call of `tool` and its result. Call ids are nine letters and digits, which all templates accept (Mistral's only those)."""
    call_id = hashlib.sha256(f"{key}\0{tool}".encode()).hexdigest()[:9]
    function = {"name": tool, "arguments": orjson.dumps(arguments).decode()}
    return [
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"id": call_id, "type": "function", "function": function}],
        },
        {"role": "tool", "tool_call_id": call_id, "content": result},
    ]
