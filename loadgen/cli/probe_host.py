"""`loadgen probe-host`: sample this machine's storage, links and GPU memory, or read such samples."""

from __future__ import annotations

import argparse
from pathlib import Path

from loadgen.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--out", default="-", metavar="FILE", help="file to append samples to (default: standard output)"
    )
    parser.add_argument(
        "--interval", type=float, default=1.0, metavar="S", help="seconds between samples (default: 1)"
    )
    parser.add_argument("--duration", type=float, metavar="S", help="stop after so many seconds")
    parser.add_argument(
        "--path",
        action="store_true",
        help="print where the sampler's single file is, to copy it to the GPU node",
    )
    parser.add_argument("--read", metavar="FILE", help="do not sample: show the rates in a file of samples")
    parser.add_argument("--run", metavar="RUN", help="with --read: show them for every round of this run")
    parser.add_argument("--json", action="store_true", help="with --read: print JSON")


def run(args: argparse.Namespace) -> int:
    from loadgen.measure.probes import host_sampler

    if args.path:
        print(host_sampler.__file__)
        return 0
    if args.read is None:
        for flag in ("run", "json"):
            if getattr(args, flag):
                raise InputError(f"--{flag} has no effect without --read")
        words = ["--out", args.out, "--interval", str(args.interval)]
        return host_sampler.main(
            words if args.duration is None else [*words, "--duration", str(args.duration)]
        )

    from loadgen.measure.probes.host_report import host_report, print_report

    report = host_report(Path(args.read), Path(args.run) if args.run else None)
    if args.json:
        import orjson

        print(orjson.dumps(report, option=orjson.OPT_INDENT_2).decode())
    else:
        print_report(report)
    return 0
