"""Turns begin a few at a time; each test in a hub of this process."""

from __future__ import annotations

import os
import time

import gevent
import pytest

from loadgen.replay import turnstile
from loadgen.replay.turnstile import Turnstile

BUSY_S = 0.003  # of each: longer than a slice, so that one passes at a time


def busy(entered: list[int], gate: Turnstile, number: int) -> None:
    gate.enter()
    entered.append(number)
    end = time.monotonic() + BUSY_S
    while time.monotonic() < end:
        pass


def test_sockets_are_read_between_two_that_fill_their_slices() -> None:
    gate, entered, seen = Turnstile(), list[int](), list[int]()
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    watcher = gevent.get_hub().loop.io(reading, 1)

    def readable() -> None:
        os.read(reading, 1)
        seen.append(len(entered))
        if len(seen) < 20:
            os.write(writing, b"x")

    watcher.start(readable)
    os.write(writing, b"x")
    try:
        gevent.joinall([gevent.spawn(busy, entered, gate, number) for number in range(10)], raise_error=True)
    finally:
        watcher.stop()
        os.close(reading)
        os.close(writing)
    assert entered == list(range(10))
    # A look at the pipe after each of them, and not one look after all.
    assert set(range(1, 9)) <= set(seen)


def test_short_ones_share_a_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(turnstile, "SLICE_NS", 60_000_000_000)
    gate, rounds = Turnstile(), [0]
    check = gevent.get_hub().loop.check()
    check.start(lambda: rounds.__setitem__(0, rounds[0] + 1))
    found = []

    def enter() -> None:
        gate.enter()
        found.append(rounds[0])

    gevent.joinall([gevent.spawn(enter) for _ in range(30)], raise_error=True)
    check.stop()
    assert len(set(found)) == 1


def test_one_who_is_killed_in_the_line_holds_nobody_up() -> None:
    gate, entered = Turnstile(), list[int]()
    lanes = [gevent.spawn(busy, entered, gate, number) for number in range(5)]
    gevent.spawn(lanes[2].kill).join()
    gevent.joinall(lanes, raise_error=True)
    assert entered == [0, 1, 3, 4]
    gate.enter()  # and it still opens
    gevent.sleep(0.01)


def test_one_who_fails_inside_holds_nobody_up() -> None:
    gate, entered = Turnstile(), list[int]()

    def fails() -> None:
        gate.enter()
        raise ValueError("on purpose")

    first, second = gevent.spawn(busy, entered, gate, 0), gevent.spawn(fails)
    third = gevent.spawn(busy, entered, gate, 2)
    gevent.get_hub().handle_error, kept = lambda *_: None, gevent.get_hub().handle_error
    try:
        gevent.joinall([first, second, third])
    finally:
        gevent.get_hub().handle_error = kept
    assert isinstance(second.exception, ValueError)
    assert entered == [0, 2]
