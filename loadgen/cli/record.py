"""`loadgen record`: a proxy between an agent and its model that writes a trace."""

from __future__ import annotations

import argparse
import re
from pathlib import Path

_SIZES = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--upstream", metavar="URL", help="the model's server, with or without /v1")
    parser.add_argument(
        "-o", "--out", type=Path, metavar="FILE", help="trace to write: .jsonl, .jsonl.zst or .jsonl.gz"
    )
    parser.add_argument("--port", type=int, default=0, help="port to listen on (default: a free one)")
    parser.add_argument(
        "--bind", default="127.0.0.1", metavar="ADDRESS", help="address to listen on (default: 127.0.0.1)"
    )
    parser.add_argument(
        "--hash-only", action="store_true", help="record no content: only which 64-token blocks repeat"
    )
    parser.add_argument(
        "--redact-personal",
        action="store_true",
        help="also replace e-mail addresses and names of home folders",
    )
    parser.add_argument(
        "--max-size",
        type=_size,
        metavar="SIZE",
        help="stop recording (not forwarding) at this size, such as 500M",
    )
    parser.add_argument(
        "--tokenizer",
        default="tekken",
        help="counts tokens for redaction, figures and blocks (default: tekken)",
    )
    parser.add_argument("--show", action="store_true", help="show live what is recorded")
    parser.add_argument(
        "--json", action="store_true", help="print one JSON line when ready and one at the end"
    )
    parser.add_argument(
        "--finish",
        type=Path,
        metavar="FILE",
        help="make a finished trace of a recording that was killed, and do nothing else",
    )
    parser.add_argument(
        "--break-prefix",
        type=Path,
        metavar="TRACE",
        help="write TRACE to -o with another nonce before each prompt, as Claude Code sends them, and do nothing else",
    )
    parser.add_argument(
        "agent",
        nargs=argparse.REMAINDER,
        metavar="-- COMMAND …",
        help="run this agent with its base URLs set to the recorder; the recording ends with it",
    )


def _size(text: str) -> int:
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)i?b?", text.strip().lower())
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size; write 500M or 2G")
    return int(float(found[1]) * _SIZES[found[2]])


def run(args: argparse.Namespace) -> int:
    from loadgen.errors import EXIT_OK, InputError
    from loadgen.record.recording import Options
    from loadgen.record.terminal import record

    if args.finish is not None:
        from loadgen.record.finish import finish

        if not args.finish.is_file():
            raise InputError(f"{args.finish} is no file")
        cut = finish(args.finish, args.finish)
        print(f"finished {args.finish}" + (f"; cut {cut} bytes of a torn last line" if cut else ""))
        return EXIT_OK
    if args.break_prefix is not None:
        from loadgen.record.breaking import break_prefix

        if args.out is None:
            raise InputError("say where to write: loadgen record --break-prefix TRACE -o OUT")
        turns = break_prefix(args.break_prefix, args.out)
        print(
            f"wrote {args.out}: {turns} turns, each with a nonce of its own at the start of its system prompt"
        )
        return EXIT_OK
    if args.upstream is None or args.out is None:
        raise InputError(
            "say where the model is and where to write: loadgen record --upstream URL -o my.jsonl"
        )
    options = Options(
        upstream=args.upstream,
        out=args.out,
        bind=args.bind,
        port=args.port,
        tokenizer=args.tokenizer,
        hash_only=args.hash_only,
        personal=args.redact_personal,
        max_bytes=args.max_size,
    )
    command = args.agent[1:] if args.agent[:1] == ["--"] else args.agent
    return record(options, command, show=args.show, as_json=args.json)
