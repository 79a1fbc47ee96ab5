"""Expected reuse and targets from a template's form must equal those of full renderings."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.measure.sample import TurnClass
from loadgen.replay import plan
from loadgen.replay.sharing import Sent
from loadgen.tokens.template import Template, common_prefix
from loadgen.trace.model import Turn


def words(text: str) -> list[int]:
    """A toy tokenizer: one token a word, by content; additive over concatenated messages."""
    return [hash(word) & 0xFFFFFF for word in text.split()]


def chatml(messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
    """A template that only appends."""
    ids = [1] + ([2, len(str(tools))] if tools else [])
    for m in messages:
        ids += [
            10,
            hash(m["role"]) & 0xFF,
            11,
            *words(m["content"] or ""),
            *words(str(m.get("tool_calls") or "")),
            12,
        ]
    return [*ids, 10, hash("assistant") & 0xFF, 11]


def moving(messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
    """A template that puts the tools before the last user message, as Mistral's do."""
    last = max(i for i, m in enumerate(messages) if m["role"] == "user")
    ids = [1]
    for i, m in enumerate(messages):
        ids += [7, 8, 9] * (i == last) + [10, hash(m["role"]) & 0xFF, *words(m["content"] or "")]
    return ids


text = st.lists(
    st.sampled_from(["alpha", "beta", "gamma", "delta", "eps", "zeta"]), min_size=1, max_size=6
).map(" ".join)
message = st.fixed_dictionaries({"role": st.sampled_from(["user", "assistant", "tool"]), "content": text})


@given(
    turns=st.lists(
        st.tuples(st.none() | st.integers(1, 5), st.lists(message, min_size=1, max_size=3)),
        min_size=1,
        max_size=6,
    )
)
def test_form_and_rendering_agree_on_a_template_that_appends(turns: list[Any]) -> None:
    prompts: list[tuple[plan.Prompt, int]] = []
    messages: list[dict[str, Any]] = []
    number = 0
    for keep, append in turns:
        kept = min(len(messages), keep) if keep is not None else len(messages)
        messages = messages[:kept]
        for m in append:  # contents that differ from every other at their first word
            number += 1
            messages.append({**m, "content": f"u{number} {m['content']}"})
        prompts.append((plan.Prompt(list(messages), [len(words(m["content"])) for m in messages]), kept))
    template = Template(chatml, lambda t: len(words(t)))
    by_form = plan.expect_by_form(template, prompts, None)
    by_rendering = plan.expect_by_rendering(chatml, lambda ms: ms, prompts, None)
    assert by_form is not None
    assert [e.target_tokens for e in by_form] == [e.target_tokens for e in by_rendering]
    for found, exact in zip(by_form, by_rendering, strict=True):
        # The form cannot see that two parting messages have one role: at most the message's own header is missing.
        assert found.reuse is not None
        assert exact.reuse is not None
        assert exact.reuse - 3 <= found.reuse <= exact.reuse


def test_a_template_that_moves_tokens_is_found_out() -> None:
    first = [{"role": "user", "content": "one two"}]
    second = [*first, {"role": "assistant", "content": "three"}, {"role": "user", "content": "four"}]
    prompts = [(plan.Prompt(first, [2]), 0), (plan.Prompt(second, [2, 1, 1]), 1)]
    assert plan.expect_by_form(Template(moving, lambda t: len(words(t))), prompts, None) is None
    exact = plan.expect_by_rendering(moving, lambda ms: ms, prompts, None)
    assert exact[1].reuse == 1  # the preamble, and nothing of what was sent


def test_a_template_that_depends_on_the_content_is_found_out() -> None:
    def strange(messages: list[dict[str, Any]], tools: list[Any] | None) -> list[int]:
        return [1] * sum(2 * len(words(m["content"])) for m in messages)

    prompts = [(plan.Prompt([{"role": "user", "content": "a b"}], [2]), 0)]
    assert plan.expect_by_form(Template(strange, lambda t: len(words(t))), prompts, None) is None


def test_one_form_is_rendered_once() -> None:
    template = Template(chatml, lambda t: len(words(t)))
    for number in range(50):
        content = f"session {number}"
        assert template.tokens([{"role": "user", "content": content}], None, [2]) == len(
            chatml([{"role": "user", "content": content}], None)
        )
    assert template.renderings == 2


@given(st.lists(st.integers(0, 2), max_size=30), st.lists(st.integers(0, 2), max_size=30))
def test_common_prefix(a: list[int], b: list[int]) -> None:
    n = common_prefix(a, b)
    assert a[:n] == b[:n]
    assert n == min(len(a), len(b)) or a[n] != b[n]


@pytest.mark.parametrize(
    ("turn", "expected", "klass"),
    [
        (Turn(session="s", index=0), plan.Expected(100, 0), TurnClass.FIRST),
        (Turn(session="s", index=0), plan.Expected(100, 49), TurnClass.FIRST),
        (Turn(session="s", index=0), plan.Expected(100, 50), TurnClass.REUSE),
        (Turn(session="s", index=3), plan.Expected(100, 3), TurnClass.FIRST),
        (Turn(session="s", index=3), plan.Expected(100, 50), TurnClass.REUSE),
        (Turn(session="s", index=3), plan.Expected(100, 49), TurnClass.REBUILT),
        (Turn(session="s", index=3, attempt=2), plan.Expected(100, 90), TurnClass.RETRY),
        (Turn(session="s", index=3), plan.Expected(None, None), TurnClass.REUSE),
    ],
)
def test_class_of_a_turn(turn: Turn, expected: plan.Expected, klass: TurnClass) -> None:
    assert plan.classify(turn, expected, floor=5) is klass


@given(
    st.lists(
        st.tuples(st.sampled_from("ab"), st.lists(st.sampled_from("xyz"), max_size=4)),
        min_size=1,
        max_size=12,
    )
)
def test_the_longest_start_that_was_sent_under_a_nonce(prompts: list[tuple[str, list[str]]]) -> None:
    sent = Sent()
    before: list[tuple[str, list[str]]] = []
    for key, letters in prompts:
        messages = [{"role": "user", "content": letter} for letter in letters]
        mine = [old for name, old in before if name == key]
        found = sent.longest(key, None, messages)
        if not mine:
            assert found is None
        else:
            assert found is not None
            best = max(common_prefix([ord(c) for c in old], [ord(c) for c in letters]) for old in mine)
            assert found[1] == best
            assert [m["content"] for m in found[0]][:best] == letters[:best]
        sent.add(key, None, messages)
        before.append((key, letters))
