"""Who builds contexts: one after the other, threads, or forked processes. The bytes do not depend on it.

Processes encode faster than as many threads: a tokenizer's regular expressions keep their scratch space for the thread that used
them first, and the others queue for theirs (140,000 tokens take that thread 19 ms, another one 26 ms, two at once 25 to
29 each). A forked process is that first thread, with scratch space of its own, and shares the tokenizer's tables. Loading
them again, as a process that is not forked must, takes about as long as ten such contexts.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol, TypeVar

T = TypeVar("T")


class Workers(Protocol):
    """Those who do `n` pieces of work that do not depend on each other."""

    def map(self, work: Callable[[int], T], n: int, done: Callable[[int, T], None]) -> None:
        """Call `work(index)` for each index below `n`, and `done(index, result)` here, in this thread, in any order.

        Raises what one of them raised; then the others are given up, and none is at work any more.
        """
        ...


class InTurn:
    """No one but the caller."""

    def map(self, work: Callable[[int], T], n: int, done: Callable[[int, T], None]) -> None:
        for index in range(n):
            done(index, work(index))


class Threads:
    """`count` threads."""

    def __init__(self, count: int) -> None:
        self._count = count

    def map(self, work: Callable[[int], T], n: int, done: Callable[[int, T], None]) -> None:
        with ThreadPoolExecutor(self._count) as pool:
            try:
                for index, result in enumerate(pool.map(work, range(n))):
                    done(index, result)
            except BaseException:
                pool.shutdown(cancel_futures=True)  # else an error or Ctrl-C waits for all of them
                raise
