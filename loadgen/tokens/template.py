"""The chat template as the server applies it: what it adds to a prompt's content, and what of a prompt survives into the next.

Every prompt of a session is rendered twice by the endpoint (`POST /tokenize` with messages), with short
stand-ins of a and of b tokens in place of the contents:

- prompt tokens = rendered(a) - messages x a + sum of the real contents' tokens. That this holds is checked:
  rendered(b) - rendered(a) must be messages x (b - a).
- common prefix of two prompts: from L(a) and L(b), the common token prefixes of the stand-in renderings, the number of
  contents that lie wholly inside the prefix is (L(b) - L(a)) / (b - a). When that is the number of messages that
  the two prompts share, the real prefix is L(a) plus what those contents are longer than a. When it is less, the template
  moves earlier tokens (Mistral's puts tools before the last user message), and the caller has to render the real prompts.

The rule needs contents that are cut off from the template's own text by the pre-tokenizer, which holds for templates
that put special tokens or newlines around a content.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

Render = Callable[[list[dict[str, Any]], list[Any] | None], list[int]]
"""Token ids of a prompt, generation prompt included."""

# Words that stand alone in every tokenizer seen; by how much the second is longer is measured, not assumed.
_SHORT, _LONG = "stand", "stand in for a much longer text of several words"
# What a message says where two prompts part: the same lengths must not look like the same content.
_OTHER_SHORT, _OTHER_LONG = "other", "other text that stands in where two prompts part"


class TemplateError(Exception):
    """The template adds something that depends on the content; counts cannot be predicted from parts."""


def common_prefix(a: Sequence[int], b: Sequence[int]) -> int:
    """Length of the common prefix of two token sequences."""
    low, high = 0, min(len(a), len(b))
    while low < high:  # a[:low] is equal; nothing beyond `high` is
        middle = (low + high + 1) // 2
        if a[low:middle] == b[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def has_content(message: dict[str, Any]) -> bool:
    return bool(message.get("content"))


def _stand_ins(messages: list[dict[str, Any]], text: str, last: str) -> list[dict[str, Any]]:
    """The messages with their contents replaced. Tool calls stay: the template renders their arguments."""
    texts = [text] * (len(messages) - 1) + [last]
    return [{**m, "content": t} if has_content(m) else m for m, t in zip(messages, texts, strict=True)]


@dataclass(frozen=True)
class Shape:
    """Two stand-in renderings of one prompt, and the tokens that the template adds to its contents."""

    short: tuple[int, ...]
    long: tuple[int, ...]
    overhead: int


class Template:
    """Renders stand-ins at one endpoint and remembers them by the prompt's form, so that sessions of one form cost one."""

    def __init__(self, render: Render, count: Callable[[str], int]) -> None:
        self._render = render
        self._short, self._long = count(_SHORT), count(_LONG)
        self._other_short, self._other_long = count(_OTHER_SHORT), count(_OTHER_LONG)
        self._shapes: dict[str, Shape] = {}
        self.renderings = 0

    def shape(
        self, messages: list[dict[str, Any]], tools: list[Any] | None, *, parting: bool = False
    ) -> Shape:
        """The prompt's form; `parting` gives the last message another stand-in than it would have.

        Raises TemplateError when what the template adds depends on the contents.
        """
        key = repr(([{**m, "content": "…"} if has_content(m) else m for m in messages], tools, parting))
        found = self._shapes.get(key)
        if found is None:
            last = (_OTHER_SHORT, _OTHER_LONG) if parting else (_SHORT, _LONG)
            short = self._render(_stand_ins(messages, _SHORT, last[0]), tools)
            long = self._render(_stand_ins(messages, _LONG, last[1]), tools)
            self.renderings += 2
            plain = sum(has_content(m) for m in messages)
            odd = int(parting and bool(messages) and has_content(messages[-1]))
            around_short = len(short) - (plain - odd) * self._short - odd * self._other_short
            around_long = len(long) - (plain - odd) * self._long - odd * self._other_long
            if around_short != around_long:
                raise TemplateError(
                    f"the chat template adds {around_short} tokens around short contents and {around_long} around long ones"
                )
            found = self._shapes[key] = Shape(tuple(short), tuple(long), around_short)
        return found

    def tokens(self, messages: list[dict[str, Any]], tools: list[Any] | None, contents: Sequence[int]) -> int:
        """Tokens of a real prompt whose filled contents have `contents` tokens each, in order."""
        return self.shape(messages, tools).overhead + sum(contents)

    def shared(
        self,
        before: list[dict[str, Any]],
        after: list[dict[str, Any]],
        tools: list[Any] | None,
        same: int,
        contents: Sequence[int],
    ) -> int | None:
        """Common token prefix of two real prompts whose first `same` messages are equal, and no more than those;
        `contents` are the token counts of the filled ones among them.

        None when the template moves tokens inside the shared part: then only the real renderings tell.
        """
        parts = same < len(before)
        first = self.shape(before[: same + 1] if parts else before, tools, parting=parts)
        second = self.shape(after, tools)
        a = common_prefix(first.short, second.short)
        b = common_prefix(first.long, second.long)
        inside, rest = divmod(b - a, self._long - self._short)
        if rest or inside != len(contents):
            return None
        return a + sum(contents) - inside * self._short
