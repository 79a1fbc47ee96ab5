"""Forked processes that share work with their parent.

What is to be done is inherited, what was done comes back through a pipe. Next in turn is a number in a file in memory,
under a lock that the system takes from a process that dies: whoever is free takes the next one.
"""

from __future__ import annotations

import fcntl
import multiprocessing
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Protocol, TypeVar

from loadgen import signals
from loadgen.errors import LoadgenError

T = TypeVar("T")


class State(Protocol):
    """What processes have apart from each other once they are forked, and what the parent has to learn of it."""

    def release(self) -> None:
        """Close what two processes cannot share."""
        ...

    def news(self) -> Any:
        """What was learnt since this was asked last; can be pickled."""
        ...

    def add(self, news: Any) -> None:
        """Learn what another process learnt."""
        ...


def may_fork() -> bool:
    """Whether this process can be forked without harm: on Linux, with no other thread (not even a library's own), without
    gevent, and not itself a child that may have none."""
    if sys.platform != "linux" or "gevent" in sys.modules or multiprocessing.current_process().daemon:
        return False
    try:
        return len(os.listdir("/proc/self/task")) == 1
    except OSError:
        return False


class Forked:
    """`count` processes, this one among them."""

    def __init__(self, count: int, state: State) -> None:
        self._count = count
        self._state = state

    def map(self, work: Callable[[int], T], n: int, done: Callable[[int, T], None]) -> None:
        """`Workers.map`. Raises LoadgenError when a process dies."""
        self._state.release()
        with ExitStack() as cleanup:
            numbers = os.memfd_create("loadgen-next")
            cleanup.callback(os.close, numbers)
            crew = _Crew()
            cleanup.callback(crew.stop)
            for _ in range(min(self._count, n) - 1):
                crew.start(self._work, work, numbers, n)
            for index in _taken(numbers, n):
                done(index, work(index))
                self._collect(crew, done, until_over=False)
            self._collect(crew, done, until_over=True)

    def _collect(self, crew: _Crew, done: Callable[[int, Any], None], *, until_over: bool) -> None:
        """Take what has come; with `until_over`, wait until every process has said that it is."""
        while crew.at_work and (ready := wait(list(crew.at_work), None if until_over else 0)):
            for pipe in ready:
                assert isinstance(pipe, Connection)
                try:
                    said = pipe.recv()
                except (EOFError, OSError):
                    raise LoadgenError(_obituary(crew.at_work[pipe])) from None
                if said is None:
                    crew.retire(pipe)
                elif isinstance(said, BaseException):
                    raise said
                else:
                    index, result, news = said
                    self._state.add(news)
                    done(index, result)

    def _work(self, work: Callable[[int], Any], numbers: int, n: int, results: Connection) -> None:
        """A process's life."""
        try:
            self._state.news()  # what the parent knows already
            for index in _taken(numbers, n):
                results.send((index, work(index), self._state.news()))
            results.send(None)
        except BrokenPipeError:
            pass  # the parent was killed: nobody is left to tell
        except BaseException as error:  # noqa: BLE001 - the parent raises it
            results.send(_portable(error))
        finally:
            self._state.release()


class _Crew:
    """Processes, each with the pipe through which it speaks."""

    def __init__(self) -> None:
        self.at_work: dict[Connection, BaseProcess] = {}
        self._context = multiprocessing.get_context("fork")

    def start(self, life: Callable[..., None], *inherited: Any) -> None:
        """Start one. It ignores Ctrl-C, which the terminal sends to all, and leaves it to the parent to end it."""
        with signals.undisturbed():
            self._start(life, inherited)

    def _start(self, life: Callable[..., None], inherited: tuple[Any, ...]) -> None:
        reading, writing = self._context.Pipe(duplex=False)
        others = list(self.at_work)

        def born() -> None:
            for pipe in (reading, *others):
                pipe.close()
            signals.as_before()
            life(*inherited, writing)

        process = self._context.Process(target=born, daemon=True, name="loadgen-contexts")
        process.start()
        self.at_work[reading] = process
        writing.close()

    def retire(self, pipe: Connection) -> None:
        """Take leave of one that is over."""
        self.at_work.pop(pipe).join()
        pipe.close()

    def stop(self) -> None:
        """End those that are still at work, and wait until they are gone."""
        with signals.undisturbed():
            self._stop()

    def _stop(self) -> None:
        for process in self.at_work.values():
            process.kill()
        for pipe in list(self.at_work):
            self.retire(pipe)


def _taken(numbers: int, n: int) -> Iterator[int]:
    """Numbers below `n` that no other process has, until there are none."""
    while (number := _next(numbers)) < n:
        yield number


def _next(numbers: int) -> int:
    # A shared position that reading moves would do without the lock, but not all kernels move it in one step.
    fcntl.lockf(numbers, fcntl.LOCK_EX)
    try:
        number = int.from_bytes(os.pread(numbers, 8, 0))
        os.pwrite(numbers, (number + 1).to_bytes(8), 0)
    finally:
        fcntl.lockf(numbers, fcntl.LOCK_UN)
    return number


def _portable(error: BaseException) -> BaseException:
    """`error`, or what it says where it cannot be sent; with its traceback where it is no sentence for the user."""
    if not isinstance(error, LoadgenError):
        error.add_note(f"in a worker process:\n{traceback.format_exc()}")
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:  # noqa: BLE001 - an exception's own constructor may do anything
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error


def _obituary(process: BaseProcess) -> str:
    process.join()
    code = process.exitcode or 0
    how = f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
    return (
        f"a process that builds contexts {how} (if memory ran out, use fewer with --processes); "
        "nothing was written, build again"
    )
