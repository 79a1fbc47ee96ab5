"""Tekken, Mistral's tokenizer, straight from its file into tiktoken.

mistral-common ships the file and has a loader, which parses 19 MB with `json`, builds a list of pieces for all
131,072 ids and takes about 4 s. Contexts need the ranks, the pattern and the special strings only.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path

import msgspec

from loadgen.errors import InputError
from loadgen.tokens.bpe import BpeTokenizer, fingerprint

SHIPPED = "tekken_240911.json"


class _Config(msgspec.Struct):
    pattern: str
    default_vocab_size: int  # special tokens included
    default_num_special_tokens: int


class _Piece(msgspec.Struct, gc=False):
    rank: int
    token_bytes: bytes  # base64 in the file


class _Special(msgspec.Struct):
    rank: int
    token_str: str


class _File(msgspec.Struct):
    config: _Config
    vocab: list[_Piece]
    special_tokens: list[_Special] | None = None


# Files up to version 7 leave these out (mistral-common holds them in code).
_OLD_SPECIALS: tuple[str, ...] = (
    "<unk>", "<s>", "</s>", "[INST]", "[/INST]", "[AVAILABLE_TOOLS]", "[/AVAILABLE_TOOLS]", "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]", "[TOOL_CALLS]", "[IMG]", "<pad>", "[IMG_BREAK]", "[IMG_END]", "[PREFIX]", "[MIDDLE]",
    "[SUFFIX]", "[SYSTEM_PROMPT]", "[/SYSTEM_PROMPT]", "[TOOL_CONTENT]",
)  # fmt: skip


def shipped_file() -> Path:
    """The Tekken file inside the installed mistral-common, found without importing it."""
    spec = importlib.util.find_spec("mistral_common")
    if spec is None or spec.origin is None:
        raise InputError(
            "mistral-common is not installed, so there is no Tekken file; pip install mistral-common"
        )
    path = Path(spec.origin).parent / "data" / SHIPPED
    if not path.is_file():
        raise InputError(f"{path} is missing; install mistral-common again or name a file with tekken:FILE")
    return path


def load(name: str, file: str | None = None) -> BpeTokenizer:
    """Load Tekken from `file` (default: the one that mistral-common ships). Ids are Mistral's: 1,000 special ids come first."""
    import tiktoken

    path = Path(file).expanduser() if file else shipped_file()
    try:
        data = path.read_bytes()
    except OSError as error:
        raise InputError(f"the Tekken file {path} cannot be read: {error.strerror}") from None
    try:
        content = msgspec.json.decode(data, type=_File)
    except msgspec.DecodeError as error:
        raise InputError(f"{path} is not a Tekken file: {error}") from None
    config = content.config
    offset = config.default_num_special_tokens
    pieces = content.vocab[: config.default_vocab_size - offset]
    if any(piece.rank != rank for rank, piece in enumerate(pieces)):
        raise InputError(f"{path} is not a Tekken file that can be used: its ranks are not in order")
    if content.special_tokens is None:
        specials = _OLD_SPECIALS
    else:
        specials = tuple(special.token_str for special in content.special_tokens)
    # Tiktoken compares ranks only with each other, so Mistral's ids (special ones first) can be the ranks.
    ranks = {piece.token_bytes: rank for rank, piece in enumerate(pieces, offset)}
    encoding = tiktoken.Encoding(name, pat_str=config.pattern, mergeable_ranks=ranks, special_tokens={})
    return BpeTokenizer(name, fingerprint(config.pattern, ranks, specials), encoding, specials)
