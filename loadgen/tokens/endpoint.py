"""An endpoint's own tokenizer, asked over HTTP: exact whatever the model is, and slower than a local one.

What a server counts may differ from the `tokenizer.json` beside its weights (transformers 5 replaces the pre-tokenizer of
some models by the one of their class), so where the two disagree the server is right.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence

NAME = "server"

_PROBES = (
    "def probe(x: int) -> str:\n    return f'{x:>12,}'  # naïve – 12345 678901\n",
    "The quick brown fox\t…\n\n\n    jumps OVER 3.14159 lazy_dogs\r\n",
    '#include <stdio.h>\nint main(void){puts("日本語 ✓");}\n',
)
# Strings that chat models read as one token; which of them this one knows cannot be asked.
_COMMON_SPECIALS = (
    "<|im_start|>",
    "<|im_end|>",
    "<|endoftext|>",
    "<|begin_of_text|>",
    "<|end_of_text|>",
    "<|start_header_id|>",
    "<|end_header_id|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|system|>",
    "<|user|>",
    "<|assistant|>",
    "<|observation|>",
    "<|start|>",
    "<|end|>",
    "<|message|>",
    "<|channel|>",
    "<|return|>",
    "<|call|>",
    "<s>",
    "</s>",
    "<unk>",
    "<pad>",
    "[INST]",
    "[/INST]",
    "[TOOL_CALLS]",
    "[AVAILABLE_TOOLS]",
    "[/AVAILABLE_TOOLS]",
    "[TOOL_RESULTS]",
    "[/TOOL_RESULTS]",
    "[SYSTEM_PROMPT]",
    "[/SYSTEM_PROMPT]",
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "<bos>",
    "<eos>",
    "<start_of_turn>",
    "<end_of_turn>",
)


class EndpointTokenizer:
    """`ask(text)` gives token ids, `tell(ids)` the text. The fingerprint is the digest of the ids of a few probe texts."""

    name = NAME
    special_strings: tuple[str, ...] = _COMMON_SPECIALS

    def __init__(self, ask: Callable[[str], list[int]], tell: Callable[[list[int]], str]) -> None:
        self._ask, self._tell = ask, tell
        ids = repr([ask(probe) for probe in _PROBES])
        self.fingerprint = hashlib.sha256(ids.encode()).hexdigest()

    def encode(self, text: str) -> list[int]:
        return self._ask(text) if text else []

    def count(self, text: str) -> int:
        return len(self.encode(text))

    def decode(self, ids: Sequence[int]) -> str:
        return self._tell(list(ids))
