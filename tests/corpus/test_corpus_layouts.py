from itertools import combinations

import msgspec
import pytest

from loadgen import tokens
from loadgen.corpus import messages
from loadgen.corpus.build import build_and_account
from loadgen.corpus.context import load_set
from loadgen.corpus.prefix import BLOCK, common, prove
from loadgen.corpus.recipe import Prompt, Recipe, resolve
from loadgen.errors import InputError


@pytest.fixture(scope="module")
def tokenizer():
    return tokens.get("tekken")


def recipe_for(repository, **prompt) -> Recipe:
    return msgspec.structs.replace(resolve(str(repository)), prompt=Prompt(**prompt))


def prompts(tokenizer, out):
    """Token ids of each context's parts, one after the other."""
    for context in load_set(out).contexts:
        data = (out / context.file).read_bytes()
        if context.file.endswith(".txt"):
            yield tokenizer.encode(data.decode())
        else:
            yield [token for part in messages.parts(messages.read(data)) for token in tokenizer.encode(part)]


@pytest.mark.parametrize("form", ["document", "messages"])
@pytest.mark.parametrize(("layout", "groups"), [("shared-prefix", 1), ("tenants", 3)])
def test_groups_share_exactly_what_they_should(tmp_path, repository, tokenizer, form, layout, groups):
    recipe = recipe_for(repository, form=form, layout=layout, shared_tokens=3500, tenants=3)
    out = tmp_path / "out"
    built = build_and_account(recipe, n=6, tokens=5000, out=out, tokenizer=tokenizer)
    ids = list(prompts(tokenizer, out))
    names = [context.group for context in built.contexts.contexts]
    assert [len(each) for each in ids] == [5000] * 6
    assert len(set(names)) == groups
    for i, j in combinations(range(6), 2):
        shared = common(ids[i], ids[j])
        if names[i] == names[j]:
            assert 3500 <= shared < 3500 + BLOCK
        else:
            assert shared < BLOCK


@pytest.mark.parametrize("layout", ["distinct", "rotated"])
def test_messages_are_an_agents(tmp_path, repository, tokenizer, layout):
    out = tmp_path / "out"
    built = build_and_account(
        recipe_for(repository, form="messages", layout=layout), n=3, tokens=7000, out=out, tokenizer=tokenizer
    )
    assert built.contexts.max_common_prefix < BLOCK
    for context in built.contexts.contexts:
        conversation = messages.read((out / context.file).read_bytes())
        assert messages.count(tokenizer, conversation) == 7000 == context.tokens
        first, *rest = conversation.messages
        assert first["role"] == "user"
        assert [message["role"] for message in rest] == ["assistant", "tool"] * (len(rest) // 2)
        assert len(rest) // 2 == len(context.files) + 1  # the tree, then one read a file
        calls = [message["tool_calls"][0] for message in rest[::2]]
        assert [call["id"] for call in calls] == [message["tool_call_id"] for message in rest[1::2]]
        assert len({call["id"] for call in calls}) == len(calls)
        assert all(len(call["id"]) == 9 and call["id"].isalnum() for call in calls)
        known = {tool["function"]["name"] for tool in conversation.tools}
        assert {call["function"]["name"] for call in calls} <= known
        for message in conversation.messages:
            assert message["content"] == message["content"].strip()


def test_messages_too_short_for_their_tools(tmp_path, repository, tokenizer):
    with pytest.raises(InputError, match="too few for system prompt, tools"):
        build_and_account(
            recipe_for(repository, form="messages"),
            n=1,
            tokens=1000,
            out=tmp_path / "out",
            tokenizer=tokenizer,
        )
    assert list(tmp_path.iterdir()) == []


def test_more_shared_than_there_is(tmp_path, repository, tokenizer):
    recipe = recipe_for(repository, layout="shared-prefix", shared_tokens=5000)
    with pytest.raises(InputError, match="cannot share 5,000"):
        build_and_account(recipe, n=1, tokens=5000, out=tmp_path / "out", tokenizer=tokenizer)


def test_pool_larger_than_a_context(tmp_path, repository, tokenizer):
    recipe = recipe_for(repository, layout="rotated", pool_tokens=20_000, tools=False)
    built = build_and_account(recipe, n=4, tokens=4000, out=tmp_path / "out", tokenizer=tokenizer)
    everything = {path for context in built.contexts.contexts for path in context.files}
    assert len(everything) > 2 * len(built.contexts.contexts[0].files)


def test_proof_finds_what_must_not_be():
    long = list(range(100))
    with pytest.raises(InputError, match="contexts 0 and 2 share their first 40 tokens"):
        prove([long, [7, *long], [*long[:40], 999]], [None] * 3, 0)
    with pytest.raises(InputError, match="fewer than the 50"):
        prove([long, [*long[:40], 999]], ["a", "a"], 50)
    with pytest.raises(InputError, match="beyond the 0"):
        prove([long, long], ["a", "b"], 50)
    assert prove([long, [*long[:52], 999], [5]], ["a", "a", "b"], 50) == (52, 0)
    assert prove([long, [*long[:20], 999]], [None, None], 0, template=10) == (0, 20)


def test_longest_prefix_between_groups_is_found_without_comparing_all():
    import random

    rng = random.Random(1)
    fronts = [[rng.randrange(3) for _ in range(12)] for _ in range(60)]
    groups = [rng.choice(["a", "b", "c"]) for _ in fronts]
    across = max(
        common(fronts[i], fronts[j]) for i, j in combinations(range(60), 2) if groups[i] != groups[j]
    )
    within = max(
        common(fronts[i], fronts[j]) for i, j in combinations(range(60), 2) if groups[i] == groups[j]
    )
    assert prove(fronts, groups, 0) == (within, across)
