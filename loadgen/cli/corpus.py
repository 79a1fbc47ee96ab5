"""`loadgen corpus`: build contexts from a repository, list and clear the cache, write a recipe."""

from __future__ import annotations

import argparse
import sys
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from loadgen.corpus.build import Built
    from loadgen.corpus.recipe import Recipe
    from loadgen.corpus.template import EndpointRendering


def add_arguments(parser: argparse.ArgumentParser) -> None:
    from loadgen.corpus.cache import KINDS

    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    _build_arguments(commands.add_parser("build", help="build contexts of an exact number of tokens"))
    check = commands.add_parser(
        "check", help="count contexts as wholes and compare with what their records say"
    )
    check.add_argument("folder", metavar="DIR", help="folder of contexts")
    _endpoint_arguments(check)
    check.add_argument("--json", action="store_true", help="print the outcome as JSON")
    cache = commands.add_parser("cache", help="list or clear what builds have left in the user's cache")
    cache.add_argument("--clear", action="store_true", help="remove instead of list")
    cache.add_argument("--kind", choices=KINDS, help="only these (default: all)")
    cache.add_argument("--json", action="store_true", help="print as JSON")
    init = commands.add_parser("init", help="write a recipe with every key, its default and what it means")
    init.add_argument(
        "source",
        nargs="?",
        default="stdlib",
        metavar="PATH|URL",
        help="repository or folder (default: stdlib)",
    )
    init.add_argument(
        "-o",
        "--out",
        default="corpus.toml",
        metavar="FILE",
        help="file to write; - prints (default: corpus.toml)",
    )
    init.add_argument("--schema", action="store_true", help="print the JSON Schema of recipes instead")


def _build_arguments(build: argparse.ArgumentParser) -> None:
    from loadgen.corpus.recipe import Form, Layout

    build.add_argument(
        "recipe",
        metavar="RECIPE|PATH|URL",
        help="a recipe (TOML file or shipped name), a repository or folder, or `stdlib`",
    )
    build.add_argument(
        "-o", "--out", metavar="DIR", help="folder of contexts to write (default: one in the cache, printed)"
    )
    build.add_argument(
        "-n", "--contexts", type=int, metavar="N", help="how many contexts (default: the recipe's, 10)"
    )
    build.add_argument(
        "--tokens", type=int, metavar="T", help="tokens of each context (default: the recipe's, 140000)"
    )
    build.add_argument("--rev", help="branch, tag or commit (default: HEAD)")
    build.add_argument(
        "--repo", metavar="PATH|URL", help="build the recipe from this repository instead of its own"
    )
    build.add_argument("--layout", choices=get_args(Layout), help="instead of the recipe's")
    build.add_argument("--form", choices=get_args(Form), help="instead of the recipe's")
    build.add_argument("--seed", type=int, help="instead of the recipe's")
    build.add_argument(
        "--processes",
        type=int,
        metavar="P",
        help="cores to use (default: all that this process may); the result does not depend on it",
    )
    _endpoint_arguments(build)
    build.add_argument(
        "--no-cache", action="store_true", help="neither take contexts from the cache nor keep them there"
    )
    build.add_argument("--json", action="store_true", help="print the outcome as JSON")


def _endpoint_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="tekken, tekken:FILE, tiktoken:NAME, hf:PATH, or server: the endpoint's own (default: tekken)",
    )
    parser.add_argument(
        "--host",
        metavar="URL",
        help="count whole prompts, chat template included, at this endpoint; build makes them exactly T tokens there",
    )
    parser.add_argument("--model", help="model of --host (default: the one that it serves)")
    parser.add_argument(
        "--api",
        choices=("chat", "completions"),
        default="chat",
        help="API that the prompts are for (default: chat)",
    )
    parser.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="VAR",
        help="environment variable with the endpoint's key (default: OPENAI_API_KEY)",
    )


def run(args: argparse.Namespace) -> int:
    return {"build": _build, "check": _check, "cache": _cache, "init": _init}[args.action](args)


def _build(args: argparse.Namespace) -> int:
    from pathlib import Path

    from loadgen import tokens
    from loadgen.corpus.build import build_and_account

    recipe = _recipe(args)
    endpoint = _endpoint(args)
    tokenizer = endpoint.tokenizer if endpoint else tokens.get(args.tokenizer or tokens.DEFAULT)
    built = build_and_account(
        recipe,
        n=args.contexts if args.contexts is not None else recipe.size.contexts,
        tokens=args.tokens if args.tokens is not None else recipe.size.tokens,
        out=Path(args.out) if args.out else None,
        tokenizer=tokenizer,
        progress=_progress if sys.stderr.isatty() else None,
        processes=args.processes,
        endpoint=endpoint,
        cached=not args.no_cache,
    )
    if args.json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(_summary(built)).decode() + "\n")
    else:
        _show(built)
    return 0


def _endpoint(args: argparse.Namespace) -> EndpointRendering | None:
    import os

    from loadgen import tokens
    from loadgen.corpus.template import Endpoint, EndpointRendering
    from loadgen.errors import InputError

    if args.host is None:
        if args.tokenizer == "server":
            raise InputError("--tokenizer server needs --host URL: the endpoint whose tokenizer counts")
        if args.model or args.api != "chat":
            raise InputError("--model and --api have an effect only with --host")
        return None
    endpoint = Endpoint(args.host, model=args.model, key=os.environ.get(args.api_key_env))
    tokenizer = None if args.tokenizer == "server" else tokens.get(args.tokenizer or tokens.DEFAULT)
    return EndpointRendering(endpoint, args.api, tokenizer)


def _recipe(args: argparse.Namespace) -> Recipe:
    from loadgen.corpus.recipe import resolve

    recipe = resolve(args.recipe, args.rev, repo=args.repo)
    if args.layout is not None:
        recipe.prompt.layout = args.layout
    if args.form is not None:
        recipe.prompt.form = args.form
    if args.seed is not None:
        recipe.prompt.seed = args.seed
    return recipe


def _progress(done: int, total: int) -> None:
    end = "\n" if done == total else ""
    sys.stderr.write(f"\rcontexts: {done}/{total}{end}")
    sys.stderr.flush()


def _summary(built: Built) -> dict[str, Any]:
    import msgspec

    found = built.contexts
    first = found.contexts[0]
    return {
        "folder": str(built.folder),
        "contexts": len(found.contexts),
        "tokens": found.tokens,
        "tokenizer": found.tokenizer,
        "tokenizer_fingerprint": found.tokenizer_fingerprint,
        "content_hash": found.content_hash,
        "max_common_prefix": found.max_common_prefix,
        "corpus": first.corpus,
        "commit": first.commit,
        **msgspec.to_builtins(built.outcome),
    }


def _show(built: Built) -> None:
    from rich.console import Console
    from rich.table import Table

    found, account = built.contexts, built.outcome
    first = found.contexts[0]
    console = Console(highlight=False)
    commit = f" at {first.commit[:12]}" if first.commit else ""
    unit = "prompt" if "endpoint" in first.extra else found.tokenizer
    lines = [
        f"{len(found.contexts)} contexts of exactly {found.tokens:,} {unit} tokens, layout {account.layout}, from {first.corpus}{commit}",
        f"in {built.folder}",
        f"longest common prefix of two: {found.max_common_prefix:,} tokens; tokenizer {found.tokenizer}, fingerprint {found.tokenizer_fingerprint[:12]}",
        *account.remarks,
    ]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    table = Table(show_edge=False, pad_edge=False)
    table.add_column(f"of {account.offered:,} files")
    table.add_column("files", justify="right")
    table.add_column("bytes", justify="right")
    table.add_row("in contexts", f"{account.used:,}", f"{account.used_bytes:,}")
    table.add_row("not needed", f"{account.spare:,}", "")
    for reason in account.left_out:
        table.add_row(f"left out: {reason.reason}", f"{reason.files:,}", f"{reason.bytes:,}")
    console.print(table)


def _check(args: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    from loadgen import tokens
    from loadgen.corpus.check import check

    endpoint = _endpoint(args)
    tokenizer = endpoint.tokenizer if endpoint else tokens.get(args.tokenizer or tokens.DEFAULT)
    found = check(Path(args.folder), tokenizer, endpoint)
    contexts = found.contexts.contexts
    if args.json:
        print(
            json.dumps(
                {
                    "contexts": len(contexts),
                    "tokens": [context.tokens for context in contexts],
                    "prompt_tokens": found.prompt_tokens,
                    "within_groups": found.proof.within,
                    "across_groups": found.proof.across,
                    "matrix": found.matrix,
                }
            )
        )
        return 0
    print(
        f"{len(contexts)} contexts are as recorded: bytes, and tokens counted as a whole by {tokenizer.name}"
    )
    if found.prompt_tokens:
        least, most = min(found.prompt_tokens), max(found.prompt_tokens)
        print(f"prompt tokens at {args.host}: {least:,}" + (f" to {most:,}" if most > least else " each"))
    print(f"longest common prefix: {found.proof.across:,} tokens, within a group {found.proof.within:,}")
    if 1 < len(contexts) <= 20:
        print("common prefixes in tokens:")
        for row, line in enumerate(found.matrix):
            print(
                "  "
                + " ".join("      ." if row == column else f"{value:7,}" for column, value in enumerate(line))
            )
    return 0


def _cache(args: argparse.Namespace) -> int:
    import json

    from loadgen.corpus import cache

    kinds = (args.kind,) if args.kind else cache.KINDS
    if args.clear:
        done = cache.clear(kinds)
        if args.json:
            print(json.dumps({"freed_bytes": done.freed, "still_linked_bytes": done.linked}))
            return 0
        still = f"; {done.linked:,} more are in use elsewhere under a second name" if done.linked else ""
        print(f"removed, which frees {done.freed:,} bytes{still}")
        return 0
    found = [entry for entry in cache.entries() if entry.kind in kinds]
    if args.json:
        print(json.dumps([entry._asdict() for entry in found]))
        return 0
    for entry in found:
        print(f"{entry.kind:9}  {entry.bytes:>13,} bytes  {entry.name}  {entry.what}")
    print(f"{cache.total(kinds):,} bytes in all, shared files counted once; --clear removes them")
    return 0


def _init(args: argparse.Namespace) -> int:
    from pathlib import Path

    from loadgen.corpus import starter
    from loadgen.corpus.recipe import resolve
    from loadgen.errors import InputError

    if args.schema:
        sys.stdout.write(starter.schema().decode())
        return 0
    recipe = resolve(args.source)
    text = starter.template(recipe.source.url, recipe.name)
    if args.out == "-":
        sys.stdout.write(text)
        return 0
    try:
        with Path(args.out).open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise InputError(f"{args.out} exists; name another file with -o") from None
    except OSError as error:
        raise InputError(f"{args.out} cannot be written: {error.strerror}") from None
    print(f"{args.out}: a recipe over {recipe.source.url}; build it with `loadgen corpus build {args.out}`")
    return 0
