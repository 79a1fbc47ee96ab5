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


def run(args: argparse.Namespace) -> int:
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
