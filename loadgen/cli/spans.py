"""`loadgen spans RUN --otlp URL`: a run's turns as OpenTelemetry spans."""

from __future__ import annotations

import argparse
from pathlib import Path


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", type=Path, metavar="RUN", help="run folder")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument(
        "--otlp", metavar="URL", help="collector that speaks OTLP over HTTP, such as http://127.0.0.1:4318"
    )
    target.add_argument(
        "--json", action="store_true", help="print the spans as JSON, one a line, instead of sending them"
    )


def run(args: argparse.Namespace) -> int:
    import logging

    from loadgen.errors import InputError

    try:
        from loadgen.observe import spans
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("opentelemetry"):
            raise
        raise InputError("spans need OpenTelemetry: pip install 'loadgen[otel]'") from None

    found = spans.spans(args.run)
    if args.json:
        for span in found:
            print(span.to_json(indent=None))
        return 0
    logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # what went wrong is told in one sentence
    print(f"{spans.send(found, args.otlp)} spans sent to {args.otlp}")
    return 0
