"""What an endpoint makes of a conversation: token ids of the whole prompt, and the tokens that its chat template adds.

The overhead depends on API, template, role sequence and tool set. It is measured with short stand-ins for the contents
and kept in the user's cache under the template's fingerprint: the digest of a small conversation as the endpoint
renders it, so another template, model or date in the prompt is another entry. Plain `http.client`, no gevent.
"""

from __future__ import annotations

import hashlib
import http.client
import threading
from collections import Counter
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec
import orjson

from loadgen.corpus.agent import tool_line
from loadgen.corpus.composed import Conversation
from loadgen.corpus.messages import parts, tool_exchange
from loadgen.corpus.source import without_credentials
from loadgen.errors import InputError
from loadgen.paths import cache_dir
from loadgen.tokens.base import Tokenizer
from loadgen.tokens.counting import Counting
from loadgen.tokens.endpoint import EndpointTokenizer

Api = Literal["chat", "completions"]
_STAND_IN = "stand"
_TIMEOUT_S = 300.0


class Endpoint:
    """Counting by one server. May be used from several threads."""

    def __init__(self, url: str, *, model: str | None = None, key: str | None = None) -> None:
        """`url` with or without `/v1`; `model` may be left out where only one is served. `key` is sent as a bearer token."""
        self.url = without_credentials(url.rstrip("/").removesuffix("/v1"))
        split = urlsplit(self.url)
        if split.scheme not in ("http", "https") or not split.hostname:
            raise InputError(f"{self.url} is not the address of an endpoint; write http://HOST:PORT")
        self._parts = split
        self._headers = {"Content-Type": "application/json"} | (
            {"Authorization": f"Bearer {key}"} if key else {}
        )
        self.model = self._served(model)
        self._counting = Counting(self.url, self._post)

    def _served(self, wanted: str | None) -> str:
        answer = self._ask("GET", "/v1/models", None)
        data = answer.get("data")
        names = (
            [str(item.get("id")) for item in data if isinstance(item, dict)] if isinstance(data, list) else []
        )
        if wanted is None and len(names) == 1:
            return names[0]
        if wanted is None or wanted not in names:
            asked = (
                f"does not serve {wanted!r}; it serves"
                if wanted
                else "does not serve exactly one model; name one with --model of"
            )
            raise InputError(f"{self.url} {asked} {', '.join(names) or 'none'}")
        return wanted

    def tokens(self, body: dict[str, Any]) -> list[int]:
        """Token ids of `prompt`, or of `messages` and `tools` as the template renders them."""
        return self._counting.ids(body)

    def text(self, ids: list[int]) -> str:
        """Text of token ids."""
        return self._counting.text(ids)

    def _post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        return self._ask("POST", path, {"model": self.model, **body})

    def _ask(self, method: str, path: str, body: dict[str, Any] | None) -> dict[str, Any]:
        kind = http.client.HTTPSConnection if self._parts.scheme == "https" else http.client.HTTPConnection
        connection = kind(str(self._parts.hostname), self._parts.port, timeout=_TIMEOUT_S)
        try:
            connection.request(
                method, self._parts.path + path, orjson.dumps(body) if body else None, self._headers
            )
            response = connection.getresponse()
            data = response.read()
        except (OSError, http.client.HTTPException) as error:
            raise InputError(
                f"{self.url} cannot be reached ({error or type(error).__name__}); is the server up?"
            ) from None
        finally:
            connection.close()
        try:
            answer = orjson.loads(data)
        except orjson.JSONDecodeError:
            answer = None
        if response.status != 200 or not isinstance(answer, dict):
            said = (
                answer.get("error", answer)
                if isinstance(answer, dict)
                else data[:200].decode("utf-8", "replace")
            )
            raise InputError(f"{self.url}{path} answered HTTP {response.status}: {str(said)[:300]}")
        return answer


class EndpointRendering:
    """Prompts as one endpoint makes them from conversations, for one API.

    `tokenizer` counts the parts; None is the endpoint's own.
    """

    def __init__(self, endpoint: Endpoint, api: Api = "chat", tokenizer: Tokenizer | None = None) -> None:
        self.endpoint = endpoint
        self.api = api
        self.tokenizer: Tokenizer = tokenizer or EndpointTokenizer(self._plain, endpoint.text)
        self._lock = threading.Lock()
        known = self.render(_known_conversation() if api == "chat" else _only(_STAND_IN))
        self.fingerprint = hashlib.sha256(orjson.dumps([api, endpoint.model, known])).hexdigest()
        self._file = cache_dir("templates") / f"{self.fingerprint[:32]}.json"
        try:
            self._overheads: dict[str, int] = msgspec.json.decode(
                self._file.read_bytes(), type=dict[str, int]
            )
        except (OSError, msgspec.DecodeError):
            self._overheads = {}

    def render(self, conversation: Conversation) -> list[int]:
        """Token ids of the whole prompt, as `usage.prompt_tokens` counts it."""
        if self.api == "completions":
            return self.endpoint.tokens({"prompt": _single(conversation), "add_special_tokens": True})
        messages = conversation.messages
        if conversation.system:
            messages = [{"role": "system", "content": conversation.system}, *messages]
        body: dict[str, Any] = {"messages": messages, "add_generation_prompt": True}
        if conversation.tools:
            body["tools"] = conversation.tools
        return self.endpoint.tokens(body)

    def overhead(self, conversation: Conversation) -> int:
        """Tokens that the template adds for this role sequence and tool set, apart from those of the parts."""
        roles = [message["role"] for message in conversation.messages]
        # Tools that differ in a session's id only are one set.
        tools = [(tool["function"]["name"], len(tool_line(tool))) for tool in conversation.tools]
        shape = orjson.dumps([self.tokenizer.fingerprint, bool(conversation.system), roles, tools])
        key = hashlib.sha256(shape).hexdigest()[:32]
        with self._lock:
            found = self._overheads.get(key)
        if found is None:
            stand_in = _stand_in(conversation)
            times = Counter(parts(stand_in))
            found = len(self.render(stand_in)) - sum(
                n * self.tokenizer.count(part) for part, n in times.items()
            )
            with self._lock:
                self._overheads[key] = found
                self._keep()
        return found

    def own_prefix(self, conversation: Conversation) -> int:
        """Tokens with which the template begins every prompt of this form, whatever the contents."""
        first, second = (_stand_in(conversation, text) for text in ("7 lines", "every other word"))
        if self.api == "chat" and conversation.tools:
            for which, mark in ((first, "7 lines"), (second, "every other word")):
                function = which.tools[0]["function"]
                which.tools = [
                    {"type": "function", "function": {**function, "description": mark}},
                    *which.tools[1:],
                ]
        a, b = self.render(first), self.render(second)
        return next((n for n, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))

    def require_agreement(self, sample: str) -> None:
        """Raise InputError, with the measured difference, when the endpoint counts `sample` unlike the tokenizer here."""
        theirs = len(self._plain(sample))
        ours = self.tokenizer.count(sample)
        if theirs != ours:
            raise InputError(
                f"{self.endpoint.model} counts {theirs:,} tokens in a text of {ours:,} {self.tokenizer.name} tokens ({theirs / ours - 1:+.1%}); "
                "build with the model's tokenizer (hf:PATH) or the endpoint's own (--tokenizer server)"
            )

    def _plain(self, text: str) -> list[int]:
        return self.endpoint.tokens({"prompt": text, "add_special_tokens": False})

    def _keep(self) -> None:
        temporary = self._file.with_suffix(f".{threading.get_ident()}.tmp")
        temporary.write_bytes(msgspec.json.encode(self._overheads))
        temporary.replace(self._file)


def _single(conversation: Conversation) -> str:
    if conversation.system or conversation.tools or len(conversation.messages) != 1:
        raise InputError("the completions API takes one text: build contexts in document form")
    return str(conversation.messages[0]["content"])


def _only(text: str) -> Conversation:
    return Conversation("", [], [{"role": "user", "content": text}])


def _known_conversation() -> Conversation:
    exchange = tool_exchange("known", "read_file", {"path": "a"}, "b")
    return Conversation(_STAND_IN, [], [{"role": "user", "content": _STAND_IN}, *exchange])


def _stand_in(conversation: Conversation, text: str = _STAND_IN) -> Conversation:
    """The same roles and tools with `text` for every content and one argument for every call."""
    messages = [
        {**message, "content": text} if message["content"] else _same_call(message)
        for message in conversation.messages
    ]
    return Conversation(text if conversation.system else "", conversation.tools, messages)


def _same_call(message: dict[str, Any]) -> dict[str, Any]:
    calls = [
        {**call, "function": {**call["function"], "arguments": '{"path":"a"}'}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}
