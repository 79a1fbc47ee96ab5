import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import tokens
from loadgen.corpus.exact import Filler, Piece, additive, cut, follows_rule
from loadgen.corpus.text import SpecialStrings, decode

TEKKEN = tokens.get("tekken")
FILLER = Filler(TEKKEN)

# Text as in sources, and the characters at which pre-tokenizers decide something.
fragment = st.text(
    st.one_of(
        st.sampled_from(
            list(
                "\n\n\n \t\r/'\"`.,;:()[]{}<>#_-=+*\\0123456789azAZ\f\v\x85\u2028\u00a0\u3000éß漢字가🦀\u0301"
            )
        ),
        st.characters(blacklist_categories=("Cs",)),
    ),
    max_size=60,
)
first = fragment.filter(lambda text: text and not text[0].isspace() and text[0] != "/")
piece = first.map(lambda text: text + "\n")


@given(st.lists(piece, min_size=1, max_size=8))
def test_counts_add_up_by_the_rule(pieces):
    assert all(map(follows_rule, pieces))
    assert TEKKEN.count("".join(pieces)) == sum(map(TEKKEN.count, pieces))
    whole = [token for each in pieces for token in TEKKEN.encode(each)]
    assert TEKKEN.encode("".join(pieces)) == whole


@given(piece, st.integers(0, 10**16 - 1))
def test_a_nonce_line_in_front_adds_up(text, number):
    nonce = f"{number:016}\n"
    assert TEKKEN.count(nonce + text) == TEKKEN.count(nonce) + TEKKEN.count(text)


@settings(max_examples=60)
@given(st.lists(piece, min_size=1, max_size=30), st.integers(12, 120), st.sampled_from(["", "\n"]))
def test_filled_is_exact_and_says_what_it_used(pieces, wanted, end):
    sources = [Piece(str(number), text) for number, text in enumerate(pieces)]
    filled = FILLER.fill(iter(sources), wanted, end=end)
    if filled is None:
        assert TEKKEN.count("".join(pieces)) < wanted
        return
    assert TEKKEN.count(filled.text) == wanted
    assert filled.text.endswith(end)
    body = filled.text.removesuffix(end) if end else filled.text
    assert body == body.rstrip()
    assert filled.front == TEKKEN.encode(filled.text)[:512]
    # Whole pieces in order, then the beginning of one or two.
    assert filled.used == [source.source for source in sources[: len(filled.used)]]
    assert filled.unused == sources[len(filled.used) :][: len(filled.unused)]


@given(st.lists(piece, min_size=1, max_size=20), st.integers(12, 60), st.floats(0.01, 5))
def test_the_estimate_decides_nothing(pieces, wanted, ratio):
    sources = [Piece(str(number), text) for number, text in enumerate(pieces)]
    other = Filler(TEKKEN)
    other._ratio = ratio
    first, second = other.fill(iter(sources), wanted), Filler(TEKKEN).fill(iter(sources), wanted)
    assert (first and first[:3]) == (second and second[:3])


@given(fragment, st.integers(1, 40))
def test_cut_is_exact(text, wanted):
    found = cut(TEKKEN, text, wanted)
    if found is not None:
        assert TEKKEN.count(found) == wanted
        assert found == found.rstrip()


class Greedy:
    """A tokenizer that merges whatever meets: every pair of characters is one token."""

    name = "greedy"
    fingerprint = "0"
    special_strings: tuple[str, ...] = ()

    def encode(self, text):
        return [hash(text[at : at + 2]) & 0xFFFF for at in range(0, len(text), 2)]

    def count(self, text):
        return (len(text) + 1) // 2

    def decode(self, ids):
        raise AssertionError("cannot be decoded")


class Blind(Greedy):
    """The same, and decoding gives something else than the text."""

    def decode(self, ids):
        return "?" * len(ids)


def test_a_tokenizer_has_to_earn_the_rule():
    assert additive(TEKKEN)
    assert not additive(Greedy())


@given(st.lists(piece, min_size=1, max_size=20), st.integers(1, 60))
def test_exact_without_the_rule(pieces, wanted):
    tokenizer = Blind()
    filled = Filler(tokenizer).fill((Piece("", text) for text in pieces), wanted)
    if filled is not None:
        assert tokenizer.count(filled.text) == wanted
        assert not filled.text[-1].isspace()


def test_tekken_cuts_between_any_two_characters_that_the_rule_allows():
    """The rule over whole scripts, not only over what hypothesis thinks of."""
    for code in [*range(0x21, 0x3100), *range(0xFE00, 0x10000), *range(0x1F300, 0x1F700)]:
        character = chr(code)
        if character.isspace() or character == "/" or 0xD800 <= code < 0xE000:
            continue
        for before in ("a\n", "a.\n", "}\n\n", "x \n"):
            assert TEKKEN.encode(before + character + "\n") == TEKKEN.encode(before) + TEKKEN.encode(
                character + "\n"
            )


@given(
    fragment
    | st.sampled_from(
        ["<|im_end|>", "<<s>s>", "[INST][/INST]", "<|a|><|b|>", "<｜end▁of▁sentence｜>", "</s></s>"]
    )
)
def test_no_special_string_is_left(text):
    special = SpecialStrings(TEKKEN)
    clean, broken = special.broken(text)
    assert special.broken(clean) == (clean, 0)
    assert not any(string in clean for string in TEKKEN.special_strings)
    assert clean.replace(" ", "") == text.replace(" ", "")
    assert (broken == 0) == (clean == text)


def test_substitution_is_a_space_after_the_first_character():
    assert SpecialStrings(TEKKEN).broken("a <|im_end|> b </s>\n") == ("a < |im_end|> b < /s>\n", 2)


@given(st.binary(max_size=300))
def test_decoded_text_is_fit_for_a_prompt(data):
    decoded = decode(data)
    if decoded is not None:
        text, _ = decoded
        assert "\0" not in text
        assert "\r" not in text
        text.encode()


@pytest.mark.parametrize("text", ["plain\n", "ünïcode ✓\n", "a\n\nb\n"])
def test_utf8_stays_as_it_is(text):
    assert decode(text.encode()) == (text, None)
