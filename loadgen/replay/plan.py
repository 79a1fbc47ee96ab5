"""What to expect of every turn, before the load: prompt tokens, tokens sent earlier, class.

Expected reuse is the common token prefix of a prompt with what its own session (and its parent) sent before, as the
endpoint's template renders them. Two ways give it: from the template's measured form and the contents' counts, which
costs a few small renderings (`tokens.template`), or from full renderings, when the template does not allow the first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from loadgen.errors import InputError
from loadgen.measure.sample import TurnClass
from loadgen.replay.content import Contents, blob_ref
from loadgen.tokens.template import Template, TemplateError, common_prefix, has_content
from loadgen.trace.model import Message, Session, Turn

FULL_RENDERING_LIMIT = 30_000_000  # prompt tokens of a run that are rendered in full when nothing else tells


@dataclass(frozen=True)
class Expected:
    """Of one turn; None where nothing can tell."""

    target_tokens: int | None
    reuse: int | None


@dataclass
class Prompt:
    """One prompt of a session: its messages (system first) and the token count of each filled content."""

    messages: list[Message]
    contents: list[int] = field(default_factory=list)


class SessionPrompts:
    """Walks a session's turns and gives each prompt, with contents counted once.

    `count_content(message, nonce)` is the token count of a message's content with the nonce line in front or without;
    `first_nonce` says whether this session's prompts carry one.
    """

    def __init__(
        self,
        session: Session,
        contents: Contents,
        count_content: Callable[[Message, bool], int],
        *,
        nonce: bool,
    ) -> None:
        self._count = count_content
        self._nonce = nonce
        self.tools = contents.value(session.tools)
        self._system: list[Message] = []
        system = contents.value(session.system)
        if system is not None:
            self._system = [{"role": "system", "content": system}]
        self._messages: list[Message] = []
        self._answer: Message | None = None

    def next(self, turn: Turn) -> tuple[Prompt, int]:
        """The prompt of the next turn, and how many of its first messages the previous prompt had."""
        kept = len(self._messages)
        if turn.attempt > 1 and turn.append is None:  # the same prompt again
            self._answer = turn.answer
            return self._prompt(), len(self._system) + kept
        if self._answer is not None:
            self._messages.append(self._answer)
        if turn.keep is not None:
            del self._messages[turn.keep :]
            kept = min(kept, turn.keep)
        self._messages += turn.append or []
        self._answer = turn.answer
        return self._prompt(), len(self._system) + kept

    def _prompt(self) -> Prompt:
        messages = self._system + self._messages
        counts = [self._count(m, self._nonce and i == 0) for i, m in enumerate(messages) if has_content(m)]
        return Prompt(messages, counts)


def filled(prompt: Prompt, messages: int) -> list[int]:
    """The content counts of the first `messages` messages that have one."""
    return prompt.contents[: sum(has_content(m) for m in prompt.messages[:messages])]


def expect_by_form(
    template: Template, prompts: Sequence[tuple[Prompt, int]], tools: list[Any] | None
) -> list[Expected] | None:
    """Expected values of a session's turns from the template's form; None when the template moves tokens or depends on
    the contents, so that only full renderings tell."""
    found: list[Expected] = []
    before: Prompt | None = None
    try:
        for prompt, same in prompts:
            reuse: int | None = 0
            if before is not None:
                reuse = template.shared(before.messages, prompt.messages, tools, same, filled(prompt, same))
                if reuse is None:
                    return None
            found.append(Expected(template.tokens(prompt.messages, tools, prompt.contents), reuse))
            before = prompt
    except TemplateError:
        return None
    return found


def expect_by_rendering(
    render: Callable[[list[Message], list[Any] | None], list[int]],
    texts: Callable[[list[Message]], list[Message]],
    prompts: Sequence[tuple[Prompt, int]],
    tools: list[Any] | None,
) -> list[Expected]:
    """Expected values from the endpoint's rendering of every real prompt. `texts` puts the real contents in."""
    found: list[Expected] = []
    before: list[int] = []
    for prompt, _ in prompts:
        tokens = render(texts(prompt.messages), tools)
        found.append(Expected(len(tokens), common_prefix(before, tokens)))
        before = tokens
    return found


def classify(turn: Turn, expected: Expected, floor: int) -> TurnClass:
    """Class of a turn. `floor` is what any two prompts share: the template's own preamble, up to the nonce."""
    if turn.attempt > 1:
        return TurnClass.RETRY
    if expected.reuse is None:
        return TurnClass.FIRST if turn.index == 0 else TurnClass.REUSE
    if expected.reuse <= floor:
        return TurnClass.FIRST
    if expected.target_tokens is None:
        return TurnClass.FIRST if turn.index == 0 else TurnClass.REUSE
    if expected.reuse * 2 >= expected.target_tokens:
        return TurnClass.REUSE
    # A session that begins with less than half in common is new work; later it is a history that was rebuilt.
    return TurnClass.FIRST if turn.index == 0 else TurnClass.REBUILT


class ContentCounter:
    """Counts the contents of messages. `count` counts a text; `nonce_line` is a sample of the line in front."""

    def __init__(
        self, contents: Contents, count: Callable[[str], int], fingerprint: str | None, nonce_line: str
    ) -> None:
        self._contents, self._count, self._fingerprint = contents, count, fingerprint
        self._nonce_line = nonce_line
        self._nonce_tokens = count(nonce_line) if nonce_line else 0

    def __call__(self, message: Message, nonce: bool) -> int:
        ref = blob_ref(message)
        if ref is not None:
            known = self._contents.recorded_tokens(ref, self._fingerprint) if self._fingerprint else None
            # A context starts where pre-tokenizers cut (design: contexts), so the nonce's tokens simply add.
            return (
                known if known is not None else self._count(self._contents.text(ref))
            ) + self._nonce_tokens * nonce
        text = plain_text(message)
        return self._count((self._nonce_line if nonce else "") + text)


def plain_text(message: Message) -> str:
    """The text of a content that a tokenizer can count. Raises InputError for images and the like."""
    content = message.get("content")
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        for part in content:
            if not isinstance(part, dict) or part.get("type") not in ("text", "input_text", "output_text"):
                kind = part.get("type") if isinstance(part, dict) else type(part).__name__
                raise InputError(
                    f"a message has a content part of type {kind!r}; only text can be counted and replayed"
                )
        return "".join(str(part.get("text", "")) for part in content)
    raise InputError(f"a message's content is {type(content).__name__}; text was expected")
