from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.sim.streams import Interner, Stream, TokenStream

PROMPTS = st.lists(st.lists(st.integers(0, 2), min_size=1, max_size=30), min_size=1, max_size=25)


def spell(stream: Stream, length: int) -> list[int]:
    """The first `length` tokens of a stream, read through its parents."""
    tokens: list[int] = []
    for part, first, end in stream.segments(length, 1):
        assert isinstance(part, TokenStream)
        tokens += part.own[first - part.branch : end - part.branch].tolist()
    return tokens


@settings(deadline=None)
@given(PROMPTS)
def test_every_interned_prompt_can_be_read_back_later(prompts: list[list[int]]) -> None:
    interner = Interner()
    streams = [interner.intern(np.array(prompt, np.int32)) for prompt in prompts]
    for prompt, stream in zip(prompts, streams, strict=True):
        assert spell(stream, len(prompt)) == prompt


@settings(deadline=None)
@given(PROMPTS)
def test_prompts_share_streams_exactly_as_far_as_their_tokens_agree(prompts: list[list[int]]) -> None:
    interner = Interner()
    streams = [interner.intern(np.array(prompt, np.int32)) for prompt in prompts]

    def owners(at: int) -> list[tuple[int, int]]:
        parts = streams[at].segments(len(prompts[at]), 1)
        return [(id(part), token) for part, first, end in parts for token in range(first, end)]

    for a in range(len(prompts)):
        for b in range(a):
            same = 0
            while same < min(len(prompts[a]), len(prompts[b])) and prompts[a][same] == prompts[b][same]:
                same += 1
            shared = sum(x == y for x, y in zip(owners(a), owners(b), strict=False))
            assert shared == same


def test_a_growing_conversation_stays_one_stream() -> None:
    interner = Interner()
    first = interner.intern(np.arange(100, dtype=np.int32))
    assert interner.intern(np.arange(250, dtype=np.int32)) is first
    assert interner.intern(np.arange(40, dtype=np.int32)) is first


def test_a_block_across_the_branch_belongs_to_the_child() -> None:
    parent = Stream()
    child = Stream(parent, branch=20)
    assert child.segments(4, 16) == [(parent, 0, 1), (child, 1, 4)]
    assert child.segments(1, 16) == [(parent, 0, 1)]


def test_what_nothing_caches_is_forgotten_with_the_parents_kept_for_it() -> None:
    interner = Interner()
    trunk = interner.intern(np.arange(100, dtype=np.int32))
    child = interner.intern(np.concatenate((np.arange(60, dtype=np.int32), np.full(9, 7, np.int32))))
    child.cached = trunk.cached = 1
    trunk.cached = 0
    interner.drop(trunk)
    assert interner.intern(np.arange(100, dtype=np.int32)) is trunk, "its child needs it"
    child.cached = 0
    interner.drop(child)
    assert interner.intern(np.arange(100, dtype=np.int32)) is not trunk
