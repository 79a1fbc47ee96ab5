"""`loadgen sim`: serve a simulated endpoint."""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--profile", default="blog", help="shipped profile or TOML file (default: blog)")
    parser.add_argument("--arm", default="offload", help="arm of the profile (default: offload)")
    parser.add_argument(
        "--scale", type=float, default=1.0, help="simulated seconds in a wall second (default: 1)"
    )
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: 127.0.0.1)")
    parser.add_argument("--port", type=int, default=8000, help="0 takes a free one (default: 8000)")
    parser.add_argument("--model", help="name of the served model (default: the profile's)")
    parser.add_argument(
        "--tokenizer", default="tekken", help="tekken, tiktoken:NAME or hf:PATH (default: tekken)"
    )
    parser.add_argument(
        "--faults", metavar="FILE", help="TOML file of faults to deal out (docs/simulator.md)"
    )
    parser.add_argument(
        "--auto-tools",
        action="store_true",
        help='with tools and tool_choice "auto", call one unless a tool just answered',
    )
    parser.add_argument("--json", action="store_true", help="print one JSON line when ready")
    actions = parser.add_subparsers(dest="action", metavar="fit")
    fit = actions.add_parser("fit", help="make a profile from the samples of real runs")
    fit.add_argument(
        "runs", nargs="+", metavar="RUN", help="run folders, sweeps of width 1 with at least 4 prompt lengths"
    )
    fit.add_argument("-o", "--out", metavar="FILE", help="write the profile there (TOML)")
    fit.add_argument("--name", default="fitted", help="name of the profile (default: fitted)")
    fit.add_argument("--kv-bytes-per-token", type=int, help="bytes of KV of a token")
    fit.add_argument(
        "--kv-of", metavar="MODEL", help="take them from a known model or its config.json (loadgen size)"
    )
    fit.add_argument("--pool-tokens", type=int, help="tokens of the KV pool (default: what run.json says)")
    fit.add_argument("--json", action="store_true", dest="fit_json", help="print JSON")


def run(args: argparse.Namespace) -> int:
    return _fit(args) if args.action == "fit" else _serve(args)


def _serve(args: argparse.Namespace) -> int:
    import asyncio
    import json
    import math
    from pathlib import Path

    from loadgen import tokens
    from loadgen.errors import InputError
    from loadgen.sim import profile as profiles
    from loadgen.sim.http import faults
    from loadgen.sim.http.app import serve
    from loadgen.sim.http.service import Service

    if not (math.isfinite(args.scale) and args.scale > 0):
        raise InputError(f"--scale must be a number above 0, not {args.scale}")
    if not 0 <= args.port <= 65535:
        raise InputError(f"--port must be between 0 and 65535, not {args.port}")
    profile = profiles.load(args.profile)
    profile.arm(args.arm)
    rules = faults.load(Path(args.faults)) if args.faults else None

    def ready(url: str) -> None:
        if args.json:
            facts = {
                "url": url,
                "profile": profile.name,
                "arm": args.arm,
                "time_scale": args.scale,
                "model": service.profile.model,
            }
            print(json.dumps(facts), flush=True)
        else:
            print(
                f"simulated {profile.name}/{args.arm} ({profile.description}), {args.scale:g} times real time: {url}",
                flush=True,
            )

    service = Service(
        profile,
        args.arm,
        args.scale,
        tokens.get(args.tokenizer),
        args.model,
        faults=rules,
        auto_tools=args.auto_tools,
    )
    asyncio.run(serve(service, args.host, args.port, ready))
    return 0


def _fit(args: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    import msgspec

    from loadgen.errors import InputError
    from loadgen.outfile import destination, refuse_input, write_file
    from loadgen.sim import fit
    from loadgen.sizing import models

    if (args.kv_bytes_per_token is None) == (args.kv_of is None):
        raise InputError("give either --kv-bytes-per-token or --kv-of MODEL")
    kv_bytes = models.find(args.kv_of).bytes_per_token() if args.kv_of else args.kv_bytes_per_token
    if kv_bytes < 1 or (args.pool_tokens is not None and args.pool_tokens < 1):
        raise InputError("--kv-bytes-per-token and --pool-tokens must be at least 1")
    if args.out:
        destination(Path(args.out))
        refuse_input(Path(args.out), [path for run in args.runs for path in Path(run).glob("*")])
    runs = fit.Runs([Path(folder) for folder in args.runs])
    fitted = fit.fit(runs, args.name, kv_bytes, args.pool_tokens)
    text = fit.to_toml(fitted.profile)
    if args.out:
        write_file(Path(args.out), text)
    if args.fit_json:
        facts = {
            "profile": msgspec.to_builtins(fitted.profile),
            "errors": [msgspec.to_builtins(e) for e in fitted.errors],
        }
        print(json.dumps({**facts, "untested": fitted.untested, "skipped": fitted.skipped}, indent=1))
        return 0
    if not args.out:
        print(text)
    for held in fitted.errors:
        print(f"held out {held.held_out}: {held.turns} turns, mean {held.mean:+.1%}, worst {held.worst:+.1%}")
    for reason in fitted.untested:
        print(f"not tested on {reason}")
    for reason, count in fitted.skipped.items():
        print(f"left out {count} turns: {reason}")
    return 0
