"""Events, encodings, headers and frames: any split of the bytes gives the same result."""

from __future__ import annotations

import gzip
import zlib
from itertools import pairwise

import brotli
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from loadgen.record.encoding import UndecodableError, decoder
from loadgen.record.exchange import Exchange, FrameReader, Lost, frame
from loadgen.record.headers import decode, end_to_end, one_spelling
from loadgen.record.sse import events

STREAM = (
    b": comment\r\nevent: a\r\ndata: one\r\n\r\n"
    b"data:two\ndata: three\n\nid: 7\nretry: 3\n\n"
    b"event: b\rdata: \xc3\xa4\r\rdata: cut off"
)
EXPECTED = [("a", b"one"), ("", b"two\nthree"), ("b", b"\xc3\xa4")]


def cuts_of(data: bytes) -> st.SearchStrategy[list[bytes]]:
    places = st.lists(st.integers(0, len(data)), max_size=8).map(lambda cuts: sorted({0, len(data), *cuts}))
    return places.map(lambda cuts: [data[a:b] for a, b in pairwise(cuts)])


@given(cuts_of(STREAM))
def test_events_in_any_split(pieces: list[bytes]) -> None:
    found = list(events(enumerate(pieces)))
    assert [(event.name, event.data) for event in found] == EXPECTED
    ends = [sum(map(len, pieces[: event.at_ns + 1])) for event in found]
    for event, end in zip(found, ends, strict=True):  # the piece that brought the last line of the event
        assert event.data.split(b"\n")[-1] in STREAM[:end]


ENCODED = {
    "gzip": gzip.compress(STREAM),
    "deflate": zlib.compress(STREAM),
    "br": brotli.compress(STREAM),
    "zstd": zstandard.ZstdCompressor().compress(STREAM),
    "identity": STREAM,
    "gzip, br": brotli.compress(gzip.compress(STREAM)),
}


@pytest.mark.parametrize("encoding", ENCODED)
@given(data=st.data())
def test_decoding_in_any_split(encoding: str, data: st.DataObject) -> None:
    decode = decoder(encoding)
    assert b"".join(decode(piece) for piece in data.draw(cuts_of(ENCODED[encoding]))) == STREAM


def test_raw_deflate() -> None:
    packer = zlib.compressobj(wbits=-15)
    assert decoder("deflate")(packer.compress(STREAM) + packer.flush()) == STREAM


@pytest.mark.parametrize("encoding", ["gzip", "br", "zstd", "deflate"])
def test_damaged_bodies_are_said_to_be(encoding: str) -> None:
    with pytest.raises(UndecodableError):
        decoder(encoding)(b"this is not compressed at all, it is text")


def test_unknown_encoding_and_bomb(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UndecodableError, match="snappy"):
        decoder("snappy")
    monkeypatch.setattr("loadgen.record.encoding.DECODED_LIMIT", 1000)
    with pytest.raises(UndecodableError, match="more than"):
        decoder("gzip")(gzip.compress(b"0" * 100_000))


def test_header_bytes_that_are_no_text() -> None:
    assert decode([(b"X-\xe9", b"caf\xc3\xa9 \xe9")]) == [("X-é", "café \ufffd")]


def test_hop_by_hop_headers_and_those_that_connection_names_stay_behind() -> None:
    given_headers = [
        ("Connection", "close, X-Private"),
        ("x-private", "1"),
        ("Keep-Alive", "5"),
        ("TE", "trailers"),
        ("anthropic-beta", "a"),
        ("Anthropic-Beta", "b"),
        ("Upgrade", "h2c"),
    ]
    kept = end_to_end(given_headers)
    assert kept == [("anthropic-beta", "a"), ("Anthropic-Beta", "b")]
    assert one_spelling(kept) == [("anthropic-beta", "a"), ("anthropic-beta", "b")]


def an_exchange(number: int, body: bytes) -> Exchange:
    return Exchange(
        number=number,
        method="POST",
        target="/v1/x",
        version="1.1",
        request_headers=[("A", "é\ufffd")],
        request_body=body,
        received_ns=1,
        end_ns=2,
        ending="complete",
        marks=[(1, 2)],
    )


@given(st.lists(st.binary(max_size=50), max_size=4), st.data())
def test_frames_in_any_split(bodies: list[bytes], data: st.DataObject) -> None:
    sent = [an_exchange(i, body) for i, body in enumerate(bodies)]
    stream = b"".join(map(frame, sent)) + frame(Lost(exchanges=3))
    torn = data.draw(st.integers(0, 7))
    reader = FrameReader()
    got = [
        notice for piece in data.draw(cuts_of(stream[: len(stream) - torn])) for notice in reader.feed(piece)
    ]
    assert got == [*sent, Lost(exchanges=3)][: len(got)]
    assert len(got) == len(sent) + (torn == 0)
