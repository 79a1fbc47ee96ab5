"""Tokenizers of other families, made here: byte-level BPE as in Llama 3 and Qwen, and one with a prefix space as in Llama 2."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen import tokens
from loadgen.corpus.exact import Filler, Piece, additive
from loadgen.errors import InputError

tokenizers = pytest.importorskip("tokenizers")
TEXT = [f"def name_{n}(value):\n    return value + {n}  # a comment\n" for n in range(300)]


def byte_level():
    from tokenizers import models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = tokenizers.decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=400,
        special_tokens=["<|end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    made.train_from_iterator(TEXT, trainer)
    return made


def prefix_space():
    from tokenizers import decoders, models, pre_tokenizers, trainers

    made = tokenizers.Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True))
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    made.decoder = decoders.Sequence(
        [decoders.Metaspace(prepend_scheme="first", split=False), decoders.ByteFallback(), decoders.Fuse()]
    )
    specials = ["<unk>", "<s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    made.train_from_iterator(
        TEXT, trainers.BpeTrainer(vocab_size=700, special_tokens=specials, show_progress=False)
    )
    return made


@pytest.fixture(scope="module", params=[byte_level, prefix_space], ids=["byte-level", "prefix-space"])
def tokenizer(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("hf")
    request.param().save(str(folder / "tokenizer.json"))
    return tokens.get(f"hf:{folder}")


def test_special_strings_are_text(tokenizer):
    special = tokenizer.special_strings[-1] if "<|end|>" in tokenizer.special_strings else "<s>"
    assert special in tokenizer.special_strings
    assert tokenizer.count(special) > 1


def test_exact_whatever_its_habits(tokenizer):
    filler = Filler(tokenizer)
    for wanted in (12, 50, 333, 1000):
        filled = filler.fill((Piece(str(n), f"line {n * n}\n") for n in range(2000)), wanted)
        assert filled is not None
        assert tokenizer.count(filled.text) == wanted == len(tokenizer.encode(filled.text))
        assert not filled.text[-1].isspace()


@settings(max_examples=40)
@given(text=st.text(st.characters(blacklist_categories=("Cs",)), max_size=200), wanted=st.integers(12, 40))
def test_exact_over_arbitrary_text(tokenizer, text, wanted):
    filled = Filler(tokenizer).fill(iter([Piece("", f"<{text}\n")]), wanted)
    if filled is not None:
        assert tokenizer.count(filled.text) == wanted


def test_byte_level_earns_the_rule(tmp_path):
    byte_level().save(str(tmp_path / "tokenizer.json"))
    assert additive(tokens.get(f"hf:{tmp_path / 'tokenizer.json'}"))


def test_fingerprint_ignores_what_decides_nothing(tmp_path):
    file = tmp_path / "tokenizer.json"
    byte_level().save(str(file))
    content = msgspec.json.decode(file.read_bytes())
    base = tokens.hf.load("x", str(file)).fingerprint
    content["truncation"] = {"direction": "Right", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    file.write_bytes(msgspec.json.encode(content))
    loaded = tokens.hf.load("x", str(file))
    assert loaded.fingerprint == base
    assert loaded.count(TEXT[0]) > 5
    content["added_tokens"][0]["content"] = "<|fin|>"
    file.write_bytes(msgspec.json.encode(content))
    assert tokens.hf.load("x", str(file)).fingerprint != base


@pytest.mark.parametrize("content", [b"", b"{}", b"[1]", b"\xff\xfe", b'{"model": 3}'])
def test_damaged(tmp_path, content):
    (tmp_path / "tokenizer.json").write_bytes(content)
    with pytest.raises(InputError, match="not a tokenizer"):
        tokens.get(f"hf:{tmp_path}")


def test_absent(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        tokens.get(f"hf:{tmp_path}/nothing")
