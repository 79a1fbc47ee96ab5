"""Everything that ends a command early, with the exit code it ends with (design: "Exit codes").

Code that meets bad input raises `InputError` with one clear sentence: what is wrong, where (file and
line), and what to do. The CLI prints that sentence and nothing else; a traceback is a bug of ours.
"""

from __future__ import annotations

EXIT_OK = 0
EXIT_REGRESSION = 1
EXIT_INPUT = 2
EXIT_INVALID = 3
EXIT_INCONCLUSIVE = 4
EXIT_INTERNAL = 70
EXIT_INTERRUPTED = 130
EXIT_HANGUP = 129  # 128 + SIGHUP
EXIT_TERMINATED = 143  # 128 + SIGTERM


class LoadgenError(Exception):
    """Base of all errors that carry a sentence for the user."""

    exit_code = EXIT_INTERNAL


class InputError(LoadgenError):
    """Input rejected before the first turn."""

    exit_code = EXIT_INPUT


class InvalidRunError(LoadgenError):
    """The run took place and its numbers may not be used."""

    exit_code = EXIT_INVALID
