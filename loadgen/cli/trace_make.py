"""`loadgen trace synth | fit | fill`: traces that are made."""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from loadgen.errors import EXIT_OK, InputError
from loadgen.outfile import destination, refuse_input

_SLOWEST = 1e-9  # sessions a second: one in 30 years; starts beyond lose their milliseconds
_MOST = (1 << 63) - 1  # beyond, numbers fit into no float or JSON of other tools


def add_arguments(actions: Any) -> None:
    synth = actions.add_parser(
        "synth", help="make a trace from contexts, from another trace's sessions, or from a profile"
    )
    source = synth.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "contexts", type=Path, nargs="?", help="folder made by `loadgen corpus build`: one session a context"
    )
    source.add_argument("--resample", type=Path, metavar="TRACE", help="draw whole sessions from a trace")
    source.add_argument(
        "--profile",
        metavar="NAME",
        help="heavy, day-to-day, benchmark, or a file made by `loadgen trace fit`",
    )
    synth.add_argument(
        "-o", "--out", type=Path, help="trace to write (default for contexts: CONTEXTS/trace.jsonl)"
    )
    synth.add_argument("--sessions", type=int, help="number of sessions (default: all contexts, or 100)")
    synth.add_argument("--seed", type=int, default=0, help="same seed, same trace (default: 0)")
    contexts = synth.add_argument_group("from contexts")
    contexts.add_argument("--turns", type=int, help="turns of each session (default: 5)")
    contexts.add_argument("--new-tokens", type=int, help="tokens of each later user message (default: 500)")
    contexts.add_argument("--output-tokens", type=int, help="tokens of each answer (default: 128)")
    drawn = synth.add_argument_group("from a trace or a profile")
    drawn.add_argument(
        "--rate", type=float, metavar="PER_S", help="sessions start at this mean rate (default: all at 0)"
    )
    drawn.add_argument(
        "--max-prompt",
        type=int,
        metavar="TOKENS",
        help="end a session before its prompt exceeds this (profile only)",
    )
    drawn.add_argument(
        "--first-prompt",
        type=int,
        metavar="TOKENS",
        help="median of the first prompt, to start in mid-session (profile only)",
    )
    drawn.add_argument("--cap-tool", type=float, metavar="S", help="longest gap after a tool (profile only)")
    drawn.add_argument("--cap-human", type=float, metavar="S", help="longest gap of a human (profile only)")
    synth.set_defaults(do=_synth)

    fit = actions.add_parser(
        "fit", help="fit a profile to a trace, and say how well a synthetic trace conforms to it"
    )
    fit.add_argument("trace", type=Path, help="trace file")
    fit.add_argument("-o", "--out", type=Path, required=True, help="profile to write (.json)")
    fit.add_argument("--name", help="name of the profile (default: the file's)")
    fit.add_argument(
        "--shared-prefix",
        type=int,
        default=0,
        metavar="TOKENS",
        help="tools and system that all sessions share (default: 0)",
    )
    fit.add_argument(
        "--holdout",
        action="store_true",
        help="fit on a random half of the sessions and compare with the other half",
    )
    fit.add_argument(
        "--sessions", type=int, default=500, help="synthetic sessions of the comparison (default: 500)"
    )
    fit.add_argument("--seed", type=int, default=0, help="same seed, same result (default: 0)")
    fit.add_argument("--json", action="store_true", help="print the comparison as JSON")
    fit.set_defaults(do=_fit)

    fill = actions.add_parser(
        "fill", help="give a content-free trace text of exactly its lengths and sharing"
    )
    fill.add_argument("trace", type=Path, help="trace file")
    fill.add_argument("-o", "--out", type=Path, required=True, help="trace to write")
    fill.add_argument(
        "--corpus", required=True, help="recipe, repository, or folder of contexts that the text comes from"
    )
    fill.add_argument("--tokenizer", help="counts the text (default: tekken)")
    fill.add_argument(
        "--per-message",
        type=int,
        default=0,
        metavar="TOKENS",
        help="tokens that the chat template adds to a message",
    )
    fill.add_argument(
        "--per-prompt", type=int, default=0, metavar="TOKENS", help="tokens that it adds to a prompt"
    )
    fill.add_argument("--seed", type=int, default=0, help="same seed, same result (default: 0)")
    fill.set_defaults(do=_fill)


def _unused(args: argparse.Namespace, why: str, *names: str) -> None:
    """A flag that has no effect is an error."""
    given = [f"--{name.replace('_', '-')}" for name in names if getattr(args, name) is not None]
    if given:
        raise InputError(f"{', '.join(given)} has no effect {why}")


def _at_least(args: argparse.Namespace, least: int, *names: str) -> None:
    """Raise InputError for a number given that is smaller, or larger than any trace is."""
    for name in names:
        given = getattr(args, name)
        if given is not None and not least <= given <= _MOST:
            raise InputError(f"--{name.replace('_', '-')} must be from {least} to {_MOST}, not {given}")


def _synth(args: argparse.Namespace) -> int:
    _at_least(args, 1, "sessions", "max_prompt", "first_prompt", "turns", "new_tokens", "output_tokens")
    _at_least(args, 0, "seed")
    if args.contexts is not None:
        _unused(args, "with contexts", "rate", "max_prompt", "first_prompt", "cap_tool", "cap_human")
        out = _from_contexts(args)
    else:
        _unused(args, "without contexts", "turns", "new_tokens", "output_tokens")
        if args.out is None:
            raise InputError("say where to write the trace: -o OUT")
        if args.rate is not None and not (math.isfinite(args.rate) and args.rate >= _SLOWEST):
            raise InputError(
                f"--rate must be above 0 (at least {_SLOWEST:g} sessions a second), not {args.rate}"
            )
        out = _resample(args) if args.resample is not None else _from_profile(args)
    print(f"wrote {out}")
    return EXIT_OK


def _from_contexts(args: argparse.Namespace) -> Path:
    from loadgen import tokens
    from loadgen.corpus.context import load_set
    from loadgen.corpus.material import Material
    from loadgen.trace.synth import from_contexts

    tokenizer = tokens.get(load_set(args.contexts).tokenizer)
    return from_contexts(
        args.contexts,
        args.out or args.contexts / "trace.jsonl",
        sessions=args.sessions,
        turns=5 if args.turns is None else args.turns,
        new_tokens=500 if args.new_tokens is None else args.new_tokens,
        output_tokens=128 if args.output_tokens is None else args.output_tokens,
        new_text=Material(args.contexts, tokenizer, args.seed).text,
        seed=args.seed,
        tokenizer=tokenizer,
    )


def _resample(args: argparse.Namespace) -> Path:
    from loadgen.trace.reader import open_trace
    from loadgen.trace.synthesis.resample import resample

    _unused(args, "with --resample", "max_prompt", "first_prompt", "cap_tool", "cap_human")
    with open_trace(args.resample) as trace:
        return resample(
            trace,
            args.out,
            sessions=100 if args.sessions is None else args.sessions,
            seed=args.seed,
            rate_per_s=args.rate,
        )


def _from_profile(args: argparse.Namespace) -> Path:
    from loadgen.trace.synthesis.parametric import synthesize
    from loadgen.trace.synthesis.profile import load_profile
    from loadgen.trace.timeline import Caps

    refuse_input(args.out, [Path(args.profile)])
    return synthesize(
        load_profile(args.profile),
        args.out,
        sessions=100 if args.sessions is None else args.sessions,
        seed=args.seed,
        rate_per_s=args.rate,
        max_prompt=args.max_prompt,
        first_prompt=args.first_prompt,
        caps=Caps(args.cap_tool, args.cap_human),
    )


def _fit(args: argparse.Namespace) -> int:
    import tempfile

    from loadgen.trace.features import conversations
    from loadgen.trace.reader import open_trace
    from loadgen.trace.synthesis.conform import LEAST, Row, conform, told
    from loadgen.trace.synthesis.fit import fit, fresh, halves
    from loadgen.trace.synthesis.parametric import synthesize
    from loadgen.trace.synthesis.profile import save_profile
    from loadgen.trace.synthesis.untold import untold

    _at_least(args, 0, "shared_prefix", "seed")
    _at_least(args, LEAST, "sessions")
    destination(args.out)  # before a fit that takes minutes
    with open_trace(args.trace) as trace:
        refuse_input(args.out, trace.files())
        found = list(conversations(trace))
        half, other = halves(found, args.seed) if args.holdout else (found, found)
        profile = fit(
            half,
            name=args.name or args.out.stem,
            source=trace.header.name or args.trace.name,
            shared_prefix=args.shared_prefix,
            block_size=trace.header.block_size,
            part="one half of " if args.holdout else "",
        )
    with tempfile.TemporaryDirectory(prefix="loadgen-") as folder:
        made = synthesize(profile, Path(folder, "synthetic.jsonl"), sessions=args.sessions, seed=args.seed)
        with open_trace(made) as synthetic:
            sides = ("the other half" if args.holdout else "the source", "the synthetic trace")
            compared = conform(other, list(conversations(synthetic)), args.seed, sides)
    rows = told(compared)
    # what a perfect model of the fitted half would come to
    floor = told(conform(other, half, args.seed)) if args.holdout else None
    save_profile(profile, args.out)  # last: a command that fails writes nothing
    subs = [c for c in half if c.session.parent is not None] if profile.sub_agents else []
    halves_of: Sequence[Row | None] = floor or [None] * len(rows)
    for note in _notes(untold(fresh(half), subs), [row.name for row in compared if row not in rows]):
        print(note, file=sys.stderr if args.json else sys.stdout)
    if args.json:
        json.dump(
            [
                {
                    "name": r.name,
                    "source": r.source,
                    "low": r.low,
                    "high": r.high,
                    "synthetic": r.synthetic,
                    "inside": r.inside,
                    "fitted_half": f.synthetic if f else None,
                    "fitted_half_inside": f.inside if f else None,
                }
                for r, f in zip(rows, halves_of, strict=True)
            ],
            sys.stdout,
        )
        print()
        return EXIT_OK
    _print_rows(rows, floor)
    print(f"wrote {args.out}")
    return EXIT_OK


def _notes(untold: list[str], missing: list[str]) -> list[str]:
    notes = [f"note: {sentence}" for sentence in untold]
    if missing:
        notes.append(f"note: left out of the comparison, for the source has none: {', '.join(missing)}")
    return notes


def _print_rows(rows: list[Any], floor: list[Any] | None) -> None:
    """`floor`: the fitted half's own figures, in the same intervals; null where the whole was fitted."""
    from rich.console import Console
    from rich.table import Table

    from loadgen.cli.trace_show import number
    from loadgen.trace.synthesis.conform import outside

    verdicts = {True: "", False: "outside", None: "–"}
    half = ["fitted half", ""] if floor else []
    table = Table("figure", "source", "95 % interval", "synthetic", "", *half, box=None)
    for row, own in zip(rows, floor or [None] * len(rows), strict=True):
        cells = [number(own.synthetic), verdicts[own.inside]] if own else []
        table.add_row(
            row.name,
            number(row.source),
            f"{number(row.low)} … {number(row.high)}",
            number(row.synthetic),
            verdicts[row.inside],
            *cells,
        )
    console = Console(highlight=False)
    console.print(table)
    against = "the other half" if floor else "the source itself"
    console.print(
        f"{outside(rows)} of {len(rows)} figures outside the source's bootstrap interval; compared with {against}"
    )
    if floor:
        console.print(
            f"the fitted half itself: {outside(floor)} of {len(floor)}, which is what a perfect model of it would come to"
        )


def _fill(args: argparse.Namespace) -> int:
    from loadgen import tokens
    from loadgen.cli.trace_files import print_report
    from loadgen.corpus.material import Material
    from loadgen.trace.fill import Template, fill
    from loadgen.trace.reader import open_trace

    _at_least(args, 0, "per_message", "per_prompt", "seed")
    destination(args.out)
    refuse_input(args.out, [args.trace, Path(args.corpus)])
    tokenizer = tokens.get(args.tokenizer or tokens.DEFAULT)
    with open_trace(args.trace) as trace:
        material = Material(args.corpus, tokenizer, args.seed)
        report = fill(
            trace,
            args.out,
            material.text,
            template=Template(args.per_message, args.per_prompt),
            tokenizer=tokenizer.name,
        )
    print(f"wrote {args.out}")
    print_report(report)
    return EXIT_OK
