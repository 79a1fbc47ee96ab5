"""The `loadgen` command: finds the command's module, runs it, turns errors into one sentence and an exit code.

Commands are imported only when they are named, so that `loadgen --help` stays fast. A command module has
`add_arguments(parser)` and `run(args) -> int`; it parses, calls and prints, and holds no logic.
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from collections.abc import Collection, Sequence
from typing import Any

from loadgen.cli.output import patient_output
from loadgen.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, LoadgenError, shortage

COMMANDS: dict[str, tuple[str, str]] = {
    # name: (module, one line of help), in the order of `loadgen --help`
    "demo": ("loadgen.cli.demo", "the whole way in one command, on a simulated endpoint"),
    "run": ("loadgen.cli.run", "replay a trace or a corpus against an endpoint"),
    "capacity": ("loadgen.cli.capacity", "find the largest load that meets an SLO"),
    "report": ("loadgen.cli.report", "rebuild the summary and the report of a run from its samples"),
    "compare": ("loadgen.cli.compare", "compare runs or arms, run against run"),
    "gate": ("loadgen.cli.gate", "judge a run by SLOs and a baseline, for CI"),
    "corpus": ("loadgen.cli.corpus", "build exact contexts from a git repository"),
    "trace": ("loadgen.cli.trace", "synthesize, show, validate, import and export traces"),
    "record": ("loadgen.cli.record", "record what a real agent does, through a transparent proxy"),
    "sim": ("loadgen.cli.sim", "serve a simulated endpoint with a tiered KV cache"),
    "size": ("loadgen.cli.size", "KV bytes, what stays in HBM, when offload pays, and what to run"),
    "whatif": (
        "loadgen.cli.whatif",
        "predict TTFT, hits and capacity of a trace on a simulated machine, without a server",
    ),
    "doctor": ("loadgen.cli.doctor", "examine an endpoint, its path and this client before a run"),
    "experiment": (
        "loadgen.cli.experiment",
        "compare arms of a server: repeated runs in balanced order, one verdict",
    ),
    "probe-host": (
        "loadgen.cli.probe_host",
        "sample storage, links and GPU memory of this machine, or read such samples",
    ),
    "init": ("loadgen.cli.init", "write a workload, an SLO file and a CI job for an endpoint"),
    "spans": ("loadgen.cli.spans", "send a run's turns to an OpenTelemetry collector as spans"),
    "explain": ("loadgen.cli.explain", "what a reason, an error class or an exit code means, and what to do"),
    "path": ("loadgen.cli.path", "print where a shipped file is"),
    "completion": ("loadgen.cli.completion", "print a shell's completion script"),
}

# Commands that leave something half-done where a signal just ends them: files, folders, processes. What serves, samples
# or records has its own way with signals.
_WRITING = ("demo", "run", "capacity", "report", "corpus", "trace", "experiment", "init")


class _Version(argparse.Action):
    """Asks git only when the version is asked for."""

    def __call__(self, parser: argparse.ArgumentParser, *_: Any) -> None:
        from loadgen.version import describe

        print(f"loadgen {describe()}")
        parser.exit()


def build_parser(selected: Collection[str]) -> argparse.ArgumentParser:
    """The command line. Only `selected` commands get their arguments, since those need the command's module."""
    parser = argparse.ArgumentParser(
        prog="loadgen",
        description="Load generator and trace replayer for agentic coding: does KV-cache offload help, for your agents, at the tail?",
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print version and commit, and exit")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        sub = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:] + ".")
        if name in selected:
            importlib.import_module(module).add_arguments(sub)
    return parser


def _open_missing() -> None:
    """Give this process the standard streams that it was started without (`2>&-`): nothing, which is no terminal.

    Else Python has None in their place, and the next file that is opened gets the number, so that a child's messages end
    up in it.
    """
    for number, name in enumerate(("stdin", "stdout", "stderr")):
        try:
            os.fstat(number)
        except OSError:
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, number)  # inherited by children, as the streams are
            if nothing != number:
                os.close(nothing)
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, "w" if number else "r", encoding="utf-8"))  # noqa: SIM115


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code (`loadgen.errors` lists them)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if sys.platform == "win32":
        print("loadgen: Windows is not supported; use Linux, macOS or WSL", file=sys.stderr)
        return 2
    _open_missing()
    selected = next((word for word in arguments if not word.startswith("-")), "")
    if selected in ("corpus", "demo", "run"):
        # These build contexts, faster in processes than in threads, and a process with threads is not forked: numpy
        # starts one for each core when it is imported. Not for commands that start servers of others.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    if selected not in _WRITING:
        return _run(selected, arguments)
    from loadgen import signals  # not on Windows

    with signals.unwinding():
        return _run(selected, arguments)


def _run(selected: str, arguments: Sequence[str]) -> int:
    from loadgen.signals import Ended

    try:
        with patient_output():
            args = build_parser({selected}).parse_args(arguments)
            return int(importlib.import_module(COMMANDS[args.command][0]).run(args))
    except LoadgenError as error:
        print(f"loadgen: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("loadgen: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Ended as end:
        print(f"loadgen: ended by {end.name}", file=sys.stderr)
        return int(end.code or 0)
    except BrokenPipeError:  # of a stream that is not standard output
        return 0
    except Exception as error:
        if os.environ.get("LOADGEN_DEBUG"):
            raise
        if words := shortage(error):
            print(f"loadgen: {words}", file=sys.stderr)
            return EXIT_INTERNAL
        print(
            f"loadgen: internal error: {type(error).__name__}: {error} (LOADGEN_DEBUG=1 shows where; please report it)",
            file=sys.stderr,
        )
        return EXIT_INTERNAL
