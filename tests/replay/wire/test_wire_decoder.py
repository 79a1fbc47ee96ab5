from __future__ import annotations

import json
import subprocess
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from streams import chat_events, chunked, sse

from loadgen.measure.sample import ErrorClass
from loadgen.replay.wire import apis, chat
from loadgen.replay.wire.decoder import ResponseDecoder
from loadgen.replay.wire.exchange import Exchange

SAMPLES = Path(__file__).resolve().parents[4] / "shared" / "samples" / "vllm"

TEXT = st.one_of(
    st.sampled_from(["a", " héé", "日本", "\n\n", "\r\n\r\n", "data: [DONE]", '"usage":{', '"finish_reason":"', "\\", "0\r\n\r\n", "x" * 300]),
    st.text(min_size=1, max_size=20),
)  # fmt: skip


def decode(
    data: bytes, cuts: list[int] | None = None, api: str = "chat", **options: Any
) -> tuple[Exchange, ResponseDecoder]:
    """Decode a whole response that arrives in reads cut at `cuts`, one every 10 ns, each read 3 ns after its arrival."""
    exchange = Exchange()
    decoder = ResponseDecoder(exchange, apis.get(api).events(collect=True), **options)
    edges = [0, *sorted({c for c in cuts or [] if 0 < c < len(data)}), len(data)]
    for number, (a, b) in enumerate(pairwise(edges), 1):
        if b > a and decoder.feed(data[a:b], number * 10, number * 10 + 3):
            break
    else:
        decoder.eof()
    decoder.settle()
    return exchange, decoder


@given(
    texts=st.lists(TEXT, min_size=1, max_size=8),
    chunk_cuts=st.lists(st.integers(1, 3000), max_size=30),
    read_cuts=st.lists(st.integers(1, 4000), max_size=40),
    pings=st.booleans(),
)
def test_any_split_into_chunks_and_packets_gives_the_same_answer(
    texts: list[str], chunk_cuts: list[int], read_cuts: list[int], pings: bool
) -> None:
    body = sse(*chat_events([{"content": text} for text in texts]))
    if pings:
        body = body.replace(b"\n\n", b"\n\n: ping\n\n")
    data = chunked(body, chunk_cuts)
    exchange, decoder = decode(data, read_cuts)
    assert exchange.error is None, exchange.message
    assert exchange.answer is not None
    assert exchange.answer.text == "".join(texts)
    assert exchange.chunks == len(texts)
    assert exchange.usage is not None
    assert exchange.usage.output_tokens == len(texts)
    assert decoder.reusable

    # The stamp of a token is that of the read that completed its event.
    whole = [data[:end] for end in [*sorted({c for c in read_cuts if 0 < c < len(data)}), len(data)]]
    chunks = []
    for read in whole:
        partial = Exchange()
        inner = ResponseDecoder(partial, chat.events())
        inner.feed(read, 1, 1)
        chunks.append(partial.chunks)
    first = next(number for number, count in enumerate(chunks, 1) if count)
    last = next(number for number, count in enumerate(chunks, 1) if count == len(texts))
    assert (exchange.first_token_ns, exchange.last_token_ns, exchange.lag_ns) == (first * 10, last * 10, 3)
    assert exchange.coalesced == (chunks[first - 1] > 1)
    assert exchange.burst == (first == last and len(texts) > 1)


@given(cut=st.integers(0, 10_000))
def test_a_stream_that_is_cut_anywhere_is_never_complete(cut: int) -> None:
    data = chunked(sse(*chat_events([{"content": "a"}, {"content": "b"}])), [50, 90, 300])
    cut = cut % len(data)
    exchange, decoder = decode(data[:cut])
    assert exchange.error is (ErrorClass.TRUNCATED if cut else ErrorClass.RESET)
    assert not decoder.reusable


@given(st.binary(max_size=300), st.integers(0, 300))
def test_garbage_is_an_error_and_never_an_exception(noise: bytes, at: int) -> None:
    good = chunked(sse(*chat_events([{"content": "a"}])))
    exchange, _ = decode(good[:at] + noise + good[at:])
    if exchange.error is None:  # noise that changes nothing: a header more, a blank, the inside of a string
        assert exchange.chunks == 1


def test_a_second_response_on_the_connection_makes_it_unusable() -> None:
    exchange, decoder = decode(chunked(sse(*chat_events([{"content": "a"}]))) + b"HTTP/1.1 200 OK\r\n\r\n")
    assert exchange.error is None
    assert not decoder.reusable


def test_usage_is_only_asked_of_those_who_promised_it() -> None:
    body = sse(*chat_events([{"content": "a"}])[:-1])
    assert decode(chunked(body))[0].error is ErrorClass.TRUNCATED
    assert decode(chunked(body), expects_usage=False)[0].error is None


def test_tokens_of_the_first_event_are_told_by_ids_or_running_usage() -> None:
    events = chat_events([{"content": "abc"}, {"content": "d"}])
    assert decode(chunked(sse(*events)))[0].first_event_tokens is None
    events[1]["choices"][0]["token_ids"] = [5, 6, 7]
    assert decode(chunked(sse(*events)))[0].first_event_tokens == 3
    events = chat_events([{"content": "abc"}, {"content": "d"}])
    for number, event in enumerate(events[:3]):
        event["usage"] = {"prompt_tokens": 9, "completion_tokens": (0, 2, 3)[number]}
    assert decode(chunked(sse(*events)))[0].first_event_tokens == 2


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="recorded vLLM streams are not here")
@pytest.mark.parametrize(
    ("name", "api", "chunks", "prompt", "output"),
    [
        ("chat_stream", "chat", 8, 29, 8),
        ("chat_stream_token_ids", "chat", 3, 11, 3),
        ("chat_stream_tool_named", "chat", 60, 89, 60),
        ("completions_stream", "completions", 2, 4, 2),
        ("responses_stream", "responses", 4, 12, 4),
        ("messages_stream", "messages", 4, 22, 4),
    ],
)
def test_streams_recorded_from_vllm(name: str, api: str, chunks: int, prompt: int, output: int) -> None:
    body = (SAMPLES / f"{name}.sse").read_bytes()
    if name == "chat_stream_tool_named":
        chunks = body.count(b'"tool_calls":[')
    exchange, _ = decode(chunked(body), api=api)
    assert exchange.error is None, exchange.message
    assert exchange.usage is not None
    assert (exchange.chunks, exchange.usage.prompt_tokens, exchange.usage.output_tokens) == (
        chunks,
        prompt,
        output,
    )
    assert exchange.usage.cached_tokens == 0


@pytest.mark.skipif(not SAMPLES.is_dir(), reason="recorded vLLM errors are not here")
@pytest.mark.parametrize("name", sorted(p.name for p in SAMPLES.glob("err_*.http")) or ["none"])
def test_errors_recorded_from_vllm(name: str) -> None:
    exchange, _ = decode((SAMPLES / name).read_bytes())
    too_long = {
        "err_too_long_chat_stream.http",
        "err_too_long_completion.http",
        "err_max_tokens_too_big.http",
    }
    if name in too_long | {"err_messages_too_long.http"}:
        assert exchange.error is ErrorClass.CONTEXT_OVERFLOW
    elif exchange.status == 200:
        assert exchange.error is ErrorClass.MALFORMED  # no stream although one was asked for
    else:
        assert exchange.error is ErrorClass.HTTP_4XX
    assert exchange.message
    assert "\n" not in exchange.message


def test_a_secret_free_error_has_the_servers_words() -> None:
    body = json.dumps({"detail": "Not\nFound"}).encode()
    exchange, decoder = decode(b"HTTP/1.1 404 Not Found\r\ncontent-length: %d\r\n\r\n%s" % (len(body), body))
    assert (exchange.error, exchange.message) == (ErrorClass.HTTP_4XX, "HTTP 404: Not Found")
    assert decoder.reusable


def test_what_is_sans_io_needs_no_gevent() -> None:
    modules = (
        "apis",
        "decoder",
        "exchange",
        "failures",
        "headers",
        "proxy",
        "sse",
        "stamps",
        "stream",
        "target",
    )
    lines = [f"import loadgen.replay.wire.{name}" for name in modules] + [
        "import sys",
        "assert 'gevent' not in sys.modules",
    ]
    subprocess.run([sys.executable, "-c", "\n".join(lines)], check=True)
