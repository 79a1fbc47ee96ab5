"""Locust's users are lanes that wait for work, not load: they come all at once, and neither their coming nor their end
stalls those who play."""

from __future__ import annotations

import functools
import logging

from locust import argument_parser, runners

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


class _NoInspection:
    """In place of `inspect` in Locust's runners."""

    def stack(self) -> None:
        raise RuntimeError("not now")  # Locust says then that it does not know


def quicken() -> None:
    """Take two stops out of the loop that times tokens (Locust 2.47, milliseconds of a 3 GHz core).

    The message that changes a worker's users asks for the default arguments once for each argument, and every time the
    whole command-line parser is built (`WorkerRunner.handle_message`: 240 ms). They do not change in a process.
    `Runner.stop` reads the source of all its callers for a debug message (25 to 57 ms), while turns under way go on.
    """
    if not hasattr(argument_parser.default_args_dict, "cache_info"):
        argument_parser.default_args_dict = functools.cache(argument_parser.default_args_dict)
    if hasattr(runners, "inspect"):
        runners.inspect = _NoInspection()
