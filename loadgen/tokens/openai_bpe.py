"""The encodings that tiktoken knows by name. Their rank files come from the network once and then from a folder."""

from __future__ import annotations

import os

from loadgen.errors import InputError
from loadgen.tokens.bpe import BpeTokenizer, fingerprint


def load(name: str, encoding_name: str) -> BpeTokenizer:
    """Load tiktoken's encoding `encoding_name` (`o200k_base`). Raises InputError when it is unknown or cannot be had offline."""
    import tiktoken

    known = tiktoken.list_encoding_names()
    if encoding_name not in known:
        raise InputError(
            f"tiktoken has no encoding called {encoding_name!r}; it has {', '.join(sorted(known))}"
        )
    try:
        encoding = tiktoken.get_encoding(encoding_name)
    except (
        OSError,
        ValueError,
    ) as error:  # requests' errors are OSErrors; ValueError: the file's hash is wrong
        folder = os.environ.get("TIKTOKEN_CACHE_DIR")
        where = f"is not in TIKTOKEN_CACHE_DIR={folder}" if folder else "is not on this disk"
        raise InputError(
            f"tiktoken's {encoding_name} {where} and cannot be downloaded ({type(error).__name__}); "
            "load it once on a machine with a network, with TIKTOKEN_CACHE_DIR set, and copy that folder here, or use tekken, which needs no network"
        ) from None
    ranks = encoding._mergeable_ranks
    specials = tuple(sorted(encoding.special_tokens_set))
    return BpeTokenizer(name, fingerprint(encoding._pat_str, ranks, specials), encoding, specials)
