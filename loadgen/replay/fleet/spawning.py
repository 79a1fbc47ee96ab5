"""Locust's users are lanes that wait for work, not load: they come all at once, and their coming stalls nobody who plays."""

from __future__ import annotations

import functools
import logging

from locust import argument_parser

_CALM = 100  # users a second from which Locust warns


class _NoAdvice(logging.Filter):
    """Leaves out Locust's advice against the rate that we chose: a lane sends nothing before it is dealt a session."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not str(record.msg).startswith("Your selected spawn rate is very high")


def rate(lanes: int) -> int:
    """Users a second that bring all `lanes` in Locust's first step, so that a session's start is the schedule's alone."""
    if lanes > _CALM:
        logging.getLogger("locust.runners").addFilter(_NoAdvice())
    return max(lanes, _CALM)


def quicken() -> None:
    """Make a worker take the message that changes its users in 5 ms.

    It asks for the default arguments once for each argument, and every time Locust (2.47, `WorkerRunner.handle_message`)
    builds its whole command-line parser: 240 ms in which the worker reads no token. They do not change in a process.
    """
    if not hasattr(argument_parser.default_args_dict, "cache_info"):
        argument_parser.default_args_dict = functools.cache(argument_parser.default_args_dict)
