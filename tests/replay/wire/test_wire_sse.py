from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadgen.replay.wire import sse
from loadgen.replay.wire.sse import EventSplitter, EventTooLongError

FIELDS = st.sampled_from(
    ["data: x", "data:y", "data", "data:  z", ": ping", "event: e", "id: 1", "retry: 5", "dat: q", "data: {}"]
)
EVENTS = st.lists(st.lists(FIELDS, min_size=1, max_size=4), min_size=1, max_size=8)


def expected(events: list[list[str]]) -> list[bytes]:
    """What the standard says, in the simplest words."""
    found = []
    for lines in events:
        data = [line.partition(":")[2] for line in lines if line.partition(":")[0] == "data"]
        if data:
            found.append("\n".join(d[1:] if d.startswith(" ") else d for d in data).encode())
    return found


@given(
    events=EVENTS,
    newlines=st.lists(st.sampled_from(["\n", "\r\n", "\r"]), min_size=1, max_size=5),
    cuts=st.sets(st.integers(0, 400)),
)
def test_any_line_ending_and_any_cut_give_the_same_events(
    events: list[list[str]], newlines: list[str], cuts: set[int]
) -> None:
    lines = [line for event in events for line in [*event, ""]]
    # A lone \r before a \n would read as one line end: such a pair is never put together by accident.
    body = ""
    for number, line in enumerate(lines):
        newline = newlines[number % len(newlines)]
        body += line + ("\r\n" if newline == "\n" and not line and body.endswith("\r") else newline)
    data = body.encode()
    splitter = EventSplitter()
    edges = [0, *sorted(c for c in cuts if c < len(data)), len(data)]
    found = [e for a, b in pairwise(edges) for e in splitter.feed(data[a:b])]
    assert found == expected(events)
    assert not splitter.pending


def test_an_event_without_end_is_pending() -> None:
    splitter = EventSplitter()
    assert splitter.feed(b"data: a\n\ndata: b\n") == [b"a"]
    assert splitter.pending
    assert splitter.feed(b"\n") == [b"b"]
    assert not splitter.pending


def test_an_endless_event_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sse, "MAX_EVENT_BYTES", 1000)
    splitter = EventSplitter()
    splitter.feed(b"data: ")
    for _ in range(9):
        splitter.feed(b"x" * 100)
    with pytest.raises(EventTooLongError):
        splitter.feed(b"x" * 100)
