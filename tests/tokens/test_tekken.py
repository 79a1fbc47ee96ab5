import binascii

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen import tokens
from loadgen.errors import InputError
from loadgen.tokens import bpe, tekken


@pytest.fixture(scope="module")
def tokenizer():
    return tokens.get("tekken")


def test_same_ids_as_mistral_common(tokenizer):
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    theirs = Tekkenizer.from_file(tekken.shipped_file())
    for text in (
        "hello world",
        "def f(x):\n\treturn x\n",
        "héllo ✓ 漢字 🦀\r\n",
        "<s>[INST] no special tokens [/INST]</s>",
    ):
        assert tokenizer.encode(text) == theirs.encode(text, bos=False, eos=False)


@given(st.text())
def test_decode_gives_the_text_back(text):
    tokenizer = tokens.get("tekken")
    assert tokenizer.decode(tokenizer.encode(text)) == text
    assert tokenizer.count(text) == len(tokenizer.encode(text))


def test_loaded_once(tokenizer):
    assert tokens.get("tekken") is tokenizer


def test_fingerprint_depends_on_every_part():
    ranks = {b"a": 0, b"b": 1, b"ab": 2}
    base = bpe.fingerprint(".", ranks, ["<s>"])
    assert base != bpe.fingerprint("..", ranks, ["<s>"])
    assert base != bpe.fingerprint(".", ranks, ["</s>"])
    assert base != bpe.fingerprint(".", {b"b": 0, b"a": 1, b"ab": 2}, ["<s>"])
    assert base != bpe.fingerprint(".", {piece: rank + 1 for piece, rank in ranks.items()}, ["<s>"])
    assert base == bpe.fingerprint(".", dict(reversed(ranks.items())), ["<s>"])


def test_own_file(tmp_path):
    pieces = [bytes([value]) for value in range(256)] + [b"ab"]
    content = {
        "config": {"pattern": r"\w+|\W", "default_vocab_size": 260, "default_num_special_tokens": 3},
        "vocab": [
            {"rank": rank, "token_bytes": binascii.b2a_base64(piece, newline=False).decode()}
            for rank, piece in enumerate(pieces)
        ],
    }
    file = tmp_path / "tekken.json"
    file.write_bytes(msgspec.json.encode(content))
    tokenizer = tokens.get(f"tekken:{file}")
    assert tokenizer.encode("abba") == [256 + 3, ord("b") + 3, ord("a") + 3]

    content["vocab"][0]["rank"] = 7
    file.write_bytes(msgspec.json.encode(content))
    with pytest.raises(InputError, match="not in order"):
        tekken.load("tekken:x", str(file))


@pytest.mark.parametrize("content", [b"", b"{}", b"\x00\xff", b'{"config": 3, "vocab": []}'])
def test_damaged_file(tmp_path, content):
    file = tmp_path / "tekken.json"
    file.write_bytes(content)
    with pytest.raises(InputError, match="not a Tekken file"):
        tekken.load("tekken:x", str(file))


@pytest.mark.parametrize("name", ["", "bert", "tiktoken:", "hf:", "tekken240"])
def test_unknown_name(name):
    with pytest.raises(InputError, match="no tokenizer is called"):
        tokens.get(name)


def test_absent_file():
    with pytest.raises(InputError, match="cannot be read"):
        tokens.get("tekken:/does/not/exist.json")
