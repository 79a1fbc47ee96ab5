"""`loadgen init`: three questions, and a workload, an SLO file and a CI job for the user's endpoint."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", metavar="URL", help="the endpoint (asked for when it is not given)")
    parser.add_argument(
        "--corpus",
        metavar="CORPUS",
        help="repository that the agents work on: a path, a URL or stdlib (asked)",
    )
    parser.add_argument(
        "--ttft",
        type=float,
        metavar="S",
        help="a later turn's first token should come within S seconds (asked)",
    )
    parser.add_argument(
        "--ci",
        choices=("github", "gitlab", "none"),
        help="which CI job to write (default: what the folder suggests)",
    )
    parser.add_argument(
        "-o", "--out", type=Path, default=Path(), metavar="DIR", help="where the files go (default: here)"
    )


def run(args: argparse.Namespace) -> int:
    from loadgen.errors import InputError
    from loadgen.replay import starter

    def answer(given: object, question: str, flag: str, default: str) -> str:
        if given is not None:
            return str(given)
        if not sys.stdin.isatty():
            raise InputError(f"nobody is there to ask; give {flag}")
        try:
            return input(f"{question} [{default}]: ").strip() or default
        except EOFError:
            raise InputError(f"no answer; give {flag}") from None

    wanted = starter.Wanted(
        host=answer(args.host, "URL of the endpoint", "--host URL", "http://127.0.0.1:8000"),
        corpus=answer(args.corpus, "Repository that the agents work on", "--corpus CORPUS", "stdlib"),
        ttft_s=answer(
            args.ttft, "Seconds within which a later turn's first token should come", "--ttft S", "8"
        ),
        ci=args.ci or starter.usual_ci(args.out),
    )
    for path in starter.write(wanted, args.out):
        print(f"wrote {path}")
    if ".github" in starter.CI_FILES.get(wanted.ci, "") and not (args.out / ".git").exists():
        print("GitHub reads workflows at the root of a repository alone: move .github there")
    print("next: loadgen doctor --host " + wanted.host)
    print(f"then: loadgen run {args.out / starter.WORKLOAD} --dry-run")
    return 0
