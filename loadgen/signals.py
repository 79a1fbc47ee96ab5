"""Signals that end a command: the first one unwinds it, and cleanup that has begun is not interrupted by more of them.

Python's own way does neither: SIGTERM and SIGHUP end the process where it stands, and each further Ctrl-C raises
again, in the middle of what the first one set off.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Ended(SystemExit):
    """Raised where the command stands when SIGTERM or SIGHUP is to end it; the exit code is 128 + the signal."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.name = signal.Signals(number).name


class _State:
    """Of this process. Signal handlers have nowhere else to keep it."""

    held = False
    waiting: int | None = None
    ending = False


def _end(number: int, _frame: object) -> None:
    if _State.ending:
        return  # on its way already, and cleanup must come to its end
    if _State.held:
        _State.waiting = _State.waiting or number
        return
    _State.ending = True
    _State.waiting = None
    raise KeyboardInterrupt if number == signal.SIGINT else Ended(number)


@contextmanager
def unwinding() -> Iterator[None]:
    """Signals that end a process raise in this block, once: KeyboardInterrupt or `Ended`.

    Only those that nobody handles or ignores yet (nohup ignores SIGHUP), and only in the main thread. Once one has come
    they are ignored for good: the process is about to end, and its exit code should say why it did.
    """
    before: dict[signal.Signals, Any] = {}
    if threading.current_thread() is threading.main_thread():
        usual = (signal.SIG_DFL, signal.default_int_handler)
        before = {number: found for number in ENDS if (found := signal.getsignal(number)) in usual}
    _State.held, _State.ending, _State.waiting = False, False, None
    for number in before:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_IGN if _State.ending else handler)


@contextmanager
def undisturbed() -> Iterator[Callable[[], Any]]:
    """Signals wait until the block is over; what it gives makes a block inside in which they do not.

    Python's own Ctrl-C waits as well where `unwinding` is not in force (loadgen used as a library).
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)
    held, _State.held = _State.held, True

    @contextmanager
    def disturbed() -> Iterator[None]:
        _State.held = held
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        try:
            _deliver()
            yield
        finally:
            _State.held = True
            signal.pthread_sigmask(signal.SIG_BLOCK, ENDS)

    try:
        yield disturbed
    finally:
        _State.held = held
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        _deliver()


def _deliver() -> None:
    if _State.waiting is not None and not _State.held:
        _end(_State.waiting, None)


def as_before() -> None:
    """For a forked child: Ctrl-C and a terminal's end, which reach all processes, are the parent's to act on; SIGTERM ends it."""
    _State.held, _State.ending, _State.waiting = False, False, None
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_UNBLOCK, ENDS)
