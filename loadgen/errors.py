"""Everything that ends a command early, with the exit code it ends with (design: "Exit codes").

Code that meets bad input raises `InputError` with one clear sentence: what is wrong, where (file and
line), and what to do. The CLI prints that sentence and nothing else; a traceback is a bug of ours.
"""

from __future__ import annotations

import errno

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


def shortage(error: BaseException) -> str | None:
    """The sentence when what ran out is a limit of this process or machine, and neither disk nor input is to blame."""
    if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno == errno.ENOMEM):
        return "memory ran out; use fewer --processes or smaller contexts, or give it more (`ulimit -v`, the container's limit)"
    if isinstance(error, OSError) and error.errno == errno.EMFILE:
        return f"this process may open no more files (its limit is {_file_limit()}); raise `ulimit -n`, or use fewer --processes"
    if isinstance(error, OSError) and error.errno == errno.ENFILE:
        return "this machine may open no more files (sysctl fs.file-max on Linux, kern.maxfiles on macOS); use fewer --processes"
    if isinstance(error, OSError) and error.errno == errno.EAGAIN:
        return "no more processes may be started (`ulimit -u`, the container's limit of pids); use fewer --processes"
    return None


def _file_limit() -> int | str:
    try:
        import resource  # not on Windows

        return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    except ImportError:
        return "unknown"
