"""What the names in a report mean: reasons, classes of errors and exit codes, each with what to do about it.

Reasons have their words in `validity`; here are those of the other two, and one way to look up all.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from loadgen import errors
from loadgen.measure.sample import ErrorClass
from loadgen.report import validity


class Meaning(msgspec.Struct, frozen=True):
    """`kind` is one of "invalid run", "failed turn" and "exit code"."""

    name: str
    kind: str
    sentence: str
    remedy: str


_ERRORS: dict[ErrorClass, tuple[str, str]] = {
    ErrorClass.CONNECT: (
        "No connection to the server could be made: refused, unreachable, a name that does not resolve, or TLS that failed.",
        "Check the URL with `loadgen doctor --host URL`; under load, raise the server's listen backlog and its file limit.",
    ),
    ErrorClass.RESET: (
        "The connection was closed by the other side before the answer was complete.",
        "Look at the server's log for a crash or a restart, and at the idle timeout of proxies on the way.",
    ),
    ErrorClass.HTTP_4XX: (
        "The server refused the request (400 to 499, without 429).",
        "Read the message beside the error: a wrong model name, a missing key, or a field that this server does not know.",
    ),
    ErrorClass.HTTP_5XX: (
        "The server failed (500 to 599, without 503).",
        "Look at the server's log at the request's id, which stands in the samples as `request_id`.",
    ),
    ErrorClass.OVERLOADED: (
        "The server or a proxy turned the request away for load (429 or 503).",
        "Lower the number of sessions or the arrival rate, or raise the limit; nothing is retried behind your back.",
    ),
    ErrorClass.TIMEOUT_FIRST_TOKEN: (
        "No first token came within `--first-token-timeout`.",
        "Raise the timeout above queueing plus a cold prefill, or lower the load; the turn ranks as infinite in percentiles.",
    ),
    ErrorClass.TIMEOUT_STALL: (
        "The stream fell silent for longer than `--stall-timeout` after its first token.",
        "Look for preemption or a hung worker on the server, and for a proxy that buffers.",
    ),
    ErrorClass.TRUNCATED: (
        "The stream ended without its last chunk, its `[DONE]`, its finish reason or the usage that was asked for.",
        "Look for a proxy with a read timeout on the way, or a server that died in mid-answer.",
    ),
    ErrorClass.MALFORMED: (
        "The answer was not valid HTTP, not a stream of events, or not JSON.",
        "Point the client at the server itself instead of a proxy; compare with `loadgen doctor --host URL`.",
    ),
    ErrorClass.CONTEXT_OVERFLOW: (
        "The prompt and the output do not fit into the model's context.",
        "Start the server with a longer `--max-model-len`, or use fewer tokens or turns.",
    ),
    ErrorClass.EMPTY_OUTPUT: (
        "The answer ended in good order without a single token.",
        "Check that the server honours `min_tokens`, and that its chat template ends with the assistant's turn.",
    ),
    ErrorClass.STREAM_ERROR: (
        "The server sent an error inside the stream, after its 200.",
        "Read the message beside the error and the server's log at the request's id.",
    ),
    ErrorClass.CANCELLED: (
        "This load generator gave the turn up: the run ended, or the recorded agent had aborted it.",
        "Nothing to do where the trace says so; otherwise let the run go to its end.",
    ),
}  # fmt: skip

_EXITS: dict[int, tuple[str, str]] = {
    errors.EXIT_OK: ("The run is valid, and every rule was kept.", "Nothing."),
    errors.EXIT_REGRESSION: (
        "An SLO was missed, or the runs are slower than the baseline.",
        "Read the verdict.",
    ),
    errors.EXIT_INPUT: ("The input was rejected before the first turn.", "Do what the one sentence says."),
    errors.EXIT_INVALID: (
        "The run took place and its figures may not be used.",
        "Read the reasons in the table or in `summary.json`; `loadgen explain REASON` has the remedy of each.",
    ),
    errors.EXIT_INCONCLUSIVE: (
        "Too few turns or runs for an answer either way.",
        "Add runs: the verdict says how many, and which effect these could have found.",
    ),
    errors.EXIT_INTERNAL: (
        "An error of loadgen's own.",
        "Run again with LOADGEN_DEBUG=1 and report what it prints.",
    ),
    errors.EXIT_HANGUP: (
        "Ended by SIGHUP (a closed terminal) while nothing was being measured.",
        "Nothing half-built was left; run it again, under `nohup` or `tmux` if the terminal will not stay.",
    ),
    errors.EXIT_INTERRUPTED: (
        "Stopped by Ctrl-C, or by a signal while it was measuring.",
        "What was measured is kept; `loadgen report RUN` reads it.",
    ),
    errors.EXIT_TERMINATED: (
        "Ended by SIGTERM while nothing was being measured.",
        "Nothing half-built was left; run it again.",
    ),
}


def meanings() -> Iterator[Meaning]:
    """All of them, in the order of the documentation."""
    for code in validity.Code:
        reason = validity.reason(code)
        yield Meaning(code.value, "invalid run", reason.sentence, reason.remedy)
    for error in ErrorClass:
        yield Meaning(error.value, "failed turn", *_ERRORS[error])
    for number, words in _EXITS.items():
        yield Meaning(str(number), "exit code", *words)
