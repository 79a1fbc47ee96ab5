"""Contexts on disk against what their records say: bytes, whole token counts, common prefixes, and an endpoint's count."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import NamedTuple

from loadgen.corpus import messages, prefix
from loadgen.corpus.composed import Conversation
from loadgen.corpus.context import Context, ContextSet, load_set
from loadgen.corpus.document import conversation
from loadgen.corpus.template import EndpointRendering
from loadgen.errors import InputError
from loadgen.tokens.base import Tokenizer

_FRONT = 512


class Checked(NamedTuple):
    """`matrix[i][j]`: tokens that the prompts of contexts i and j have in common at their start, as far as `front` tokens.

    `prompt_tokens`: what the endpoint counts for each; empty without one.
    """

    contexts: ContextSet
    matrix: list[list[int]]
    proof: prefix.Proof
    front: int
    prompt_tokens: list[int]


def check(folder: Path, tokenizer: Tokenizer, endpoint: EndpointRendering | None = None) -> Checked:
    """Count every context as a whole and compare. Raises InputError, with the difference, at the first that is not as recorded."""
    found = load_set(folder)
    shared = int(found.contexts[0].extra.get("shared_tokens", 0))
    front = shared + _FRONT
    fronts: list[list[int]] = []
    counts: list[int] = []
    for context in found.contexts:
        if context.tokenizer_fingerprint != tokenizer.fingerprint:
            raise InputError(
                f"{folder} was built with {context.tokenizer}, fingerprint {context.tokenizer_fingerprint[:12]}; {tokenizer.name} is "
                f"{tokenizer.fingerprint[:12]} and counts otherwise: name the first with --tokenizer"
            )
        sent = _conversation(folder, context)
        ids = [token for part in messages.parts(sent) for token in tokenizer.encode(part)]
        if len(ids) != context.tokens:
            raise InputError(
                f"{folder / context.file} has {len(ids):,} tokens and not {context.tokens:,} as recorded"
            )
        if endpoint is not None:
            ids = endpoint.render(sent)
            counts.append(len(ids))
            if len(counts) == 1:
                endpoint.require_agreement(max(messages.parts(sent), key=len))
        fronts.append(ids[:front])
    template, around = 0, 0
    if endpoint is not None:
        first = _conversation(folder, found.contexts[0])
        template, around = endpoint.own_prefix(first), endpoint.overhead(first)
    proof = prefix.prove(
        fronts, [context.group for context in found.contexts], shared, template=template, around=around
    )
    return Checked(found, prefix.matrix(fronts), proof, front, counts)


def _conversation(folder: Path, context: Context) -> Conversation:
    data = (folder / context.file).read_bytes()
    if hashlib.sha256(data).hexdigest() != context.sha256:
        raise InputError(
            f"{folder / context.file} is not the file that was built: its SHA-256 differs; build the contexts again"
        )
    return messages.read(data) if context.file.endswith(".json") else conversation(data.decode())
