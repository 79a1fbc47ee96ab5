"""`loadgen doctor --host URL`: is this endpoint, its path and this client fit for a run?"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", required=True, metavar="URL", help="endpoint, with or without /v1")
    parser.add_argument(
        "--model", metavar="NAME", help="model name (default: the only one that the endpoint serves)"
    )
    parser.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="VAR",
        help="environment variable that holds the API key",
    )
    parser.add_argument(
        "--context-tokens",
        type=int,
        default=140_000,
        metavar="N",
        help="longest prompt of the run you plan (default: 140000)",
    )
    parser.add_argument(
        "--probe-tokens",
        type=int,
        default=8192,
        metavar="N",
        help="prompt tokens of a probe of the tier (default: 8192)",
    )
    parser.add_argument(
        "--store-url", metavar="URL", help="/metrics of a KV store beside the server, such as LMCache's own"
    )
    parser.add_argument("--no-tier", action="store_true", help="do not probe for a tier behind HBM")
    parser.add_argument(
        "--evict",
        action="store_true",
        help="fill the KV pool with other prompts where nothing else empties it",
    )
    parser.add_argument("--curve", type=int, metavar="N", help="fit the cold curve up to N tokens")
    parser.add_argument(
        "--taxes", action="store_true", help="measure the write taxes of a first turn (24 prompts or more)"
    )
    parser.add_argument(
        "--off-host", metavar="URL", help="the same server without a connector, for the config tax"
    )
    parser.add_argument(
        "--timeout", type=float, default=900.0, metavar="S", help="longest wait for an answer (default: 900)"
    )
    parser.add_argument("--yes", action="store_true", help="send to a host that is not local without asking")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")


def run(args: argparse.Namespace) -> int:
    from rich.console import Console

    from loadgen.doctor import present
    from loadgen.doctor.examination import Choice, examine
    from loadgen.doctor.finding import Status
    from loadgen.doctor.patient import Patient
    from loadgen.errors import EXIT_INVALID, EXIT_OK, InputError
    from loadgen.replay.endpoint import Api, api_key, discover
    from loadgen.replay.rendering import Renderer
    from loadgen.replay.wire.target import Target

    for name in ("context_tokens", "probe_tokens", "curve"):
        value = getattr(args, name)
        if value is not None and value < 256:
            raise InputError(f"--{name.replace('_', '-')} must be at least 256, not {value}")
    if not args.timeout > 0:
        raise InputError(f"--timeout must be above 0, not {args.timeout}")
    if args.off_host and not args.taxes:
        raise InputError("--off-host has no effect without --taxes")
    if args.no_tier and (args.evict or args.taxes):
        raise InputError("--evict and --taxes need the probe of the tier, which --no-tier leaves out")

    def patient(host: str) -> Patient:
        api = Api(Target.parse(host), api_key(args.api_key_env))
        facts = discover(api, args.model)
        store = Api(Target.parse(args.store_url), None) if args.store_url else None
        return Patient(
            api=api,
            facts=facts,
            renderer=Renderer(api, facts.model),
            context_tokens=args.context_tokens,
            probe_tokens=args.probe_tokens,
            timeout_s=args.timeout,
            store=store,
            evict=args.evict,
        )

    examined = patient(args.host)
    off = patient(args.off_host) if args.off_host else None
    choice = Choice(probe_tier=not args.no_tier, curve_tokens=args.curve, taxes=args.taxes)
    planned = choice.prompt_tokens(examined, off)
    remote = [p.api.url for p in (examined, off) if p is not None and not p.api.local]
    if remote and not args.yes:
        raise InputError(
            f"this would send about {planned:,} prompt tokens to {remote[0]}, which is not a local host; --yes allows it, --no-tier sends 2,400"
        )
    console = Console(stderr=True, highlight=False)
    if not args.json:
        console.print(
            f"about {planned:,} prompt tokens at most will be sent to {examined.api.url}", markup=False
        )
    findings = []
    out = Console(highlight=False)
    for finding in examine(examined, choice, off):
        findings.append(finding)
        if not args.json:
            present.print_finding(finding, out)
    if args.json:
        print(present.as_json(findings, examined))
    else:
        present.print_summary(findings, examined, out)
    return EXIT_INVALID if any(f.status is Status.FAIL for f in findings) else EXIT_OK
