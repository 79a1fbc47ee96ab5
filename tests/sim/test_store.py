"""The store of extents against vLLM's block pool, block by block."""

from __future__ import annotations

from collections import OrderedDict

from hypothesis import given, settings
from hypothesis import strategies as st

from loadgen.sim.store import PrefixStore
from loadgen.sim.streams import Stream

BLOCK = 4


class BlockPool:
    """vLLM's rules, one block at a time: free queue in LRU order, a request's blocks freed tail first."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.cached: OrderedDict[object, None] = OrderedDict()  # the free queue, next victim first

    def run(self, keys: list[object]) -> int:
        hits = 0
        while hits < len(keys) and keys[hits] in self.cached:
            hits += 1
        for key in keys[:hits]:
            del self.cached[key]
        while len(self.cached) + len(keys) > self.capacity:
            self.cached.popitem(last=False)
        for key in reversed(keys):
            self.cached.pop(key, None)
            self.cached[key] = None
        return hits


def keys_of(stream: Stream, blocks: int) -> list[object]:
    return [(id(part), at) for part, first, end in stream.segments(blocks, BLOCK) for at in range(first, end)]


def use(store: PrefixStore, stream: Stream, blocks: int) -> int:
    """One request, alone: match, hold, reserve, fill, release."""
    hit = store.match(None, stream, blocks)
    held = store.hold(None, stream, hit)
    assert store.reserve(blocks - hit)
    assert store.fill(held, None, stream, hit, blocks) == blocks - hit
    store.release(held)
    return hit


@st.composite
def trees(draw: st.DrawFn) -> list[Stream]:
    streams = [Stream()]
    for _ in range(draw(st.integers(0, 5))):
        parent = draw(st.sampled_from([None, *streams]))
        streams.append(Stream(parent, draw(st.integers(0, 40)) if parent else 0))
    return streams


@settings(max_examples=300, deadline=None)
@given(trees(), st.lists(st.tuples(st.integers(0, 5), st.integers(0, 16)), max_size=40), st.integers(16, 40))
def test_hits_equal_those_of_a_pool_of_single_blocks(
    streams: list[Stream], uses: list[tuple[int, int]], capacity: int
) -> None:
    store, pool = PrefixStore(BLOCK, capacity), BlockPool(capacity)
    for which, blocks in uses:
        stream = streams[which % len(streams)]
        assert use(store, stream, blocks) == pool.run(keys_of(stream, blocks))
        assert store.used == store.idle == len(pool.cached)


@settings(max_examples=200, deadline=None)
@given(
    trees(),
    st.lists(st.tuples(st.integers(0, 5), st.integers(0, 16), st.booleans()), max_size=40),
    st.integers(4, 40),
)
def test_a_store_never_overflows_and_gives_everything_back(
    streams: list[Stream], uses: list[tuple[int, int, bool]], capacity: int
) -> None:
    store = PrefixStore(BLOCK, capacity)
    live = []
    for which, blocks, release in uses:
        stream = streams[which % len(streams)]
        hit = store.match(None, stream, blocks)
        if store.available - store.idle_in(None, stream, hit) >= blocks - hit:
            held = store.hold(None, stream, hit)
            assert store.reserve(blocks - hit)
            made = store.fill(held, None, stream, hit, blocks)
            live.append((held, blocks - hit - made))
        if release and live:
            held, private = live.pop(0)
            store.unreserve(private)
            store.release(held)
        assert 0 <= store.idle <= store.used <= capacity
    for held, private in live:
        store.unreserve(private)
        store.release(held)
    assert store.used == store.idle
    assert store.clear()
    assert all(store.match(None, stream, 16) == 0 for stream in streams)


def test_tail_goes_first() -> None:
    store = PrefixStore(BLOCK, 10)
    a, b = Stream(), Stream()
    use(store, a, 8)
    use(store, b, 5)
    assert store.match(None, a, 8) == 5
    assert store.match(None, b, 5) == 5


def test_head_first_eviction_leaves_no_prefix_but_keeps_its_space() -> None:
    store = PrefixStore(BLOCK, 10, evict="head")
    a, b = Stream(), Stream()
    assert store.insert(None, a, 8) == 8
    assert store.insert(None, b, 5) == 5
    assert store.match(None, a, 8) == 0
    assert store.used == 10
    assert store.insert(None, a, 8) == 3, "only the lost head is stored again"
    assert store.match(None, a, 8) == 8


def test_namespaces_share_nothing_but_the_capacity() -> None:
    store = PrefixStore(BLOCK, 10)
    a = Stream()
    store.insert("salt", a, 6)
    assert store.match(None, a, 6) == 0
    assert store.match("salt", a, 6) == 6
    store.insert(None, a, 6)
    assert store.match("salt", a, 6) == 4


def test_a_sequence_larger_than_the_store_keeps_its_head() -> None:
    store = PrefixStore(BLOCK, 10)
    a = Stream()
    assert store.insert(None, a, 14) == 10
    assert store.match(None, a, 14) == 10
