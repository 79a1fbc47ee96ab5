"""Turns begin a few at a time; each test in a hub of this process."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import gevent
import pytest

from loadgen.replay import turnstile
from loadgen.replay.turnstile import Turnstile

MS = 1_000_000
clock = [0]


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes where a test says so."""
    clock[0] = 1
    monkeypatch.setattr(turnstile, "monotonic_ns", lambda: clock[0])


class Socket:
    """Readable in every round of the loop; `rounds` says how many had entered at each look."""

    def __init__(self, entered: list[int], busy_ns: int = 0) -> None:
        self.rounds: list[int] = []
        self._entered, self._busy_ns = entered, busy_ns
        self._reading, self._writing = os.pipe()
        os.write(self._writing, b"x")
        self._watcher = gevent.get_hub().loop.io(self._reading, 1)
        self._watcher.start(self._readable)

    def _readable(self) -> None:
        clock[0] += self._busy_ns
        self.rounds.append(len(self._entered))

    def close(self) -> None:
        self._watcher.stop()
        os.close(self._reading)
        os.close(self._writing)


@pytest.fixture
def entered() -> list[int]:
    return []


@pytest.fixture
def busy_socket(entered: list[int]) -> Iterator[Socket]:
    found = Socket(entered, 40 * MS)
    yield found
    found.close()


@pytest.fixture
def socket(entered: list[int]) -> Iterator[Socket]:
    found = Socket(entered)
    yield found
    found.close()


def work(entered: list[int], gate: Turnstile, number: int, lasts_ns: int = 3 * MS) -> None:
    gate.enter()
    entered.append(number)
    clock[0] += lasts_ns


def test_sockets_are_read_between_two_that_fill_their_slices(entered: list[int], socket: Socket) -> None:
    gate = Turnstile()
    gevent.joinall([gevent.spawn(work, entered, gate, number) for number in range(10)], raise_error=True)
    assert entered == list(range(10))
    assert set(range(1, 10)) <= set(socket.rounds)  # a look after each of them, not one after all


def test_short_ones_share_a_slice(entered: list[int], socket: Socket) -> None:
    gate = Turnstile()
    gevent.joinall([gevent.spawn(work, entered, gate, number, MS) for number in range(10)], raise_error=True)
    assert [number for number in (2, 4, 6, 8) if number in socket.rounds] == [2, 4, 6, 8]
    assert not {1, 3, 5, 7, 9} & set(socket.rounds)


def test_streams_that_fill_the_core_leave_a_fifth_of_it(entered: list[int], busy_socket: Socket) -> None:
    gate = Turnstile()
    gevent.joinall([gevent.spawn(work, entered, gate, number, MS) for number in range(60)], raise_error=True)
    passed = [after - before for before, after in itertools.pairwise(busy_socket.rounds)]
    assert max(passed) == 10  # of 1 ms each, beside 40 ms of reading


def test_one_who_is_killed_in_the_line_holds_nobody_up(entered: list[int]) -> None:
    gate = Turnstile()
    lanes = [gevent.spawn(work, entered, gate, number) for number in range(5)]
    gevent.spawn(lanes[2].kill).join()
    gevent.joinall(lanes, raise_error=True)
    assert entered == [0, 1, 3, 4]
    gate.enter()  # and it still opens


def test_a_line_that_was_killed_lengthens_no_later_slice(entered: list[int], socket: Socket) -> None:
    gate = Turnstile()
    lanes = [gevent.spawn(work, entered, gate, number) for number in range(4)]
    while len(entered) < 2:  # the second came out of the line, and two are left in it
        gevent.sleep(0)
    gevent.killall(lanes)
    for _ in range(5):
        gevent.sleep(0.001)
    clock[0] += 100_000 * MS
    socket.rounds.clear()
    gevent.joinall([gevent.spawn(work, entered, gate, number) for number in range(10, 16)], raise_error=True)
    assert entered == [0, 1, *range(10, 16)]
    assert set(range(3, 8)) <= set(socket.rounds)


def test_one_who_fails_inside_holds_nobody_up(entered: list[int]) -> None:
    gate = Turnstile()

    def fails() -> None:
        gate.enter()
        raise ValueError("on purpose")

    first, second = gevent.spawn(work, entered, gate, 0), gevent.spawn(fails)
    third = gevent.spawn(work, entered, gate, 2)
    gevent.get_hub().handle_error, kept = lambda *_: None, gevent.get_hub().handle_error
    try:
        gevent.joinall([first, second, third])
    finally:
        gevent.get_hub().handle_error = kept
    assert isinstance(second.exception, ValueError)
    assert entered == [0, 2]
