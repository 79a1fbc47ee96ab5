"""Bytes of a file to text that can stand in a prompt: encodings, line ends, special-token strings."""

from __future__ import annotations

import codecs
import re

from loadgen.tokens.base import Tokenizer

# Strings that some model family reads as one special token. A context built for one tokenizer is often sent to a
# server with another, so these are broken in addition to the tokenizer's own.
_COMMON = (
    r"<(?:\|[^\s<>|]{1,40}\||｜[^\s<>｜]{1,40}｜|/?s|unk|pad|bos|eos|mask|SPECIAL_\d+|(?:start|end)_of_turn"
    r"|/?think|/?tool_call|/?tool_response)>",
    r"\[(?:/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_RESULTS|TOOL_CONTENT)"
    r"|TOOL_CALLS|IMG|IMG_BREAK|IMG_END|PREFIX|MIDDLE|SUFFIX)\]",
)  # fmt: skip


class SpecialStrings:
    """Finds strings that a server may read as special tokens and breaks them by a space after their first character.

    `<|im_end|>` becomes `< |im_end|>`: ordinary text for every tokenizer, and still readable.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        common = re.compile("|".join(_COMMON))
        own = [
            string for string in tokenizer.special_strings if len(string) > 1 and not common.fullmatch(string)
        ]
        own.sort(key=lambda string: (-len(string), string))
        # One pattern for each first character: a search for one that is given is ten times as fast as for one of several.
        by_first: dict[str, list[str]] = {}
        for pattern in (*_COMMON, *map(re.escape, own)):
            by_first.setdefault(pattern.removeprefix("\\")[0], []).append(pattern)
        self._patterns = [re.compile("|".join(patterns)) for patterns in by_first.values()]

    def broken(self, text: str) -> tuple[str, int]:
        """`text` without such strings, and how many were broken."""
        total = 0
        while any(pattern.search(text) for pattern in self._patterns):
            for pattern in self._patterns:
                text, n = pattern.subn(lambda found: f"{found[0][0]} {found[0][1:]}", text)
                total += n
        return text, total


def decode(data: bytes) -> tuple[str, str | None] | None:
    """(text with LF line ends, note) of a text file; None for binary data.

    UTF-8 first, UTF-16 and UTF-32 by their byte-order marks, else Latin-1, as in old sources; the note says which.
    Binary is what git calls so: a NUL in the first 8,000 bytes; and control characters in what is not UTF-8.
    """
    note = None
    if data.startswith(codecs.BOM_UTF8):
        data = data[3:]
    for mark, encoding in (
        (codecs.BOM_UTF32_LE, "utf-32"),
        (codecs.BOM_UTF32_BE, "utf-32"),
        (codecs.BOM_UTF16_LE, "utf-16"),
        (codecs.BOM_UTF16_BE, "utf-16"),
    ):
        if data.startswith(mark):
            try:
                text, note = data.decode(encoding), f"read as {encoding.upper()}"
                break
            except UnicodeDecodeError:
                return None
    else:
        if b"\0" in data[:8000]:
            return None
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            if sum(byte < 9 or 13 < byte < 32 or 127 <= byte < 160 for byte in data[:8000]) > 8:
                return None
            text, note = data.decode("latin-1"), "read as Latin-1"
    if "\0" in text:
        return None
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
        note = note or "CRLF line ends made LF"
    return text, note
