from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from loadgen import tokens
from loadgen.replay import nonce


def test_tekken_takes_plain_digits() -> None:
    assert nonce.prove(tokens.get("tekken").count) == ("plain", 17)


def test_a_tokenizer_that_merges_digits_gets_dashes() -> None:
    def merging(text: str) -> int:  # a run of one digit is one token, so the count depends on the digits
        runs = [c for i, c in enumerate(text) if i == 0 or c != text[i - 1] or not c.isdigit()]
        return len(runs)

    assert nonce.prove(merging) == ("dashed", 32)


def test_no_form_is_claimed_where_none_is_constant() -> None:
    assert nonce.prove(lambda text: hash(text) % 7) is None


@given(st.lists(st.tuples(st.text(max_size=5), st.integers()), min_size=2, max_size=20, unique=True))
def test_digits_differ_by_key_and_have_one_width(keys: list[tuple[str, int]]) -> None:
    found = [nonce.digits(*key) for key in keys]
    assert len(set(found)) == len(found)
    assert {len(number) for number in found} == {nonce.DIGITS}
    assert all(number.isdigit() for number in found)


def test_a_nonce_in_the_tools_leaves_everything_else_alone() -> None:
    tools = [
        {"type": "function", "function": {"name": "read", "description": "Read a file"}},
        {"name": "other"},
    ]
    found = nonce.into_tools(tools, "123\n")
    assert found[0]["function"] == {"name": "read", "description": "123 Read a file"}
    assert found[1] is tools[1]
    assert tools[0]["function"]["description"] == "Read a file"  # type: ignore[index]
    assert nonce.into_tools([{"name": "flat"}], "7\n") == [{"name": "flat", "description": "7 "}]
