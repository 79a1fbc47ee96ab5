import base64
import hashlib

import pytest

from loadgen import tokens
from loadgen.errors import InputError


def test_unknown_encoding_names_the_known():
    with pytest.raises(InputError, match="o200k_base"):
        tokens.get("tiktoken:o300k")


def test_offline_says_what_to_do(tmp_path, monkeypatch):
    """With a proxy that refuses, a download fails at once, on a machine with a network too."""
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))
    for name in ("HTTPS_PROXY", "https_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with pytest.raises(InputError, match=r"p50k_base is not in TIKTOKEN_CACHE_DIR=.*use tekken"):
        tokens.get("tiktoken:p50k_base")


def test_from_the_cache_folder(tmp_path, monkeypatch):
    """An encoding whose ranks lie in TIKTOKEN_CACHE_DIR needs no network."""
    import tiktoken
    from tiktoken.load import load_tiktoken_bpe

    url = "https://example.org/made.tiktoken"
    ranks = b"".join(base64.b64encode(bytes([value])) + b" %d\n" % value for value in range(256))
    (tmp_path / hashlib.sha1(url.encode()).hexdigest()).write_bytes(ranks)
    monkeypatch.setenv("TIKTOKEN_CACHE_DIR", str(tmp_path))

    def made():
        return {
            "name": "made",
            "pat_str": r"\S+|\s+",
            "mergeable_ranks": load_tiktoken_bpe(url),
            "special_tokens": {"<|x|>": 256},
        }

    tiktoken.list_encoding_names()
    monkeypatch.setitem(tiktoken.registry.ENCODING_CONSTRUCTORS, "made", made)
    tokenizer = tokens.get("tiktoken:made")
    assert tokenizer.encode("a<|x|>") == list(b"a<|x|>")
    assert tokenizer.special_strings == ("<|x|>",)
