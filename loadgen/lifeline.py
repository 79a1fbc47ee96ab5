"""Ties a process that loadgen starts for itself to its starter, however that one ends.

The starter keeps the writing end of a pipe that is the child's standard input, and never writes. The system closes it
with the starter, kill -9 included, and the child then reads its end. Nothing polls, and it works wherever pipes do.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Mapping

_MARK = "LOADGEN_LIFELINE"
STDIN = 0


def tied(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment (default: this process's own) for a child that is to end with its starter.

    Start it with `stdin=subprocess.PIPE` and keep that open for as long as it may live.
    """
    return {**(os.environ if environment is None else environment), _MARK: "stdin"}


def taken() -> bool:
    """Whether this process was started so. Asked once: what it starts itself is not to find the mark."""
    return os.environ.pop(_MARK, None) is not None


def on_end(call: Callable[[], object]) -> None:
    """Call `call` in a thread when the starter is gone. The thread sleeps in a read until then.

    Not for a process under gevent, whose loop such a read would stop, nor for one that forks later.
    """

    def watch() -> None:
        with contextlib.suppress(OSError):
            while os.read(STDIN, 4096):
                pass
        with contextlib.suppress(RuntimeError):  # the loop that it wanted to tell is closed
            call()

    threading.Thread(target=watch, name="loadgen-lifeline", daemon=True).start()
