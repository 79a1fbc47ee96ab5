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
    from loadgen.corpus.recipe import Form, Layout

    commands = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    build = commands.add_parser("build", help="build contexts of an exact number of tokens")
    build.add_argument(
        "recipe",
        metavar="RECIPE|PATH|URL",
        help="a recipe (TOML file or shipped name), a repository or folder, or `stdlib`",
    )
    build.add_argument("-o", "--out", required=True, metavar="DIR", help="folder of contexts to write")
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
    build.add_argument(
        "--tokenizer",
        metavar="NAME",
        help="tekken, tekken:FILE, tiktoken:NAME, hf:PATH, or server: the endpoint's own (default: tekken)",
    )
    build.add_argument("--layout", choices=get_args(Layout), help="instead of the recipe's")
    build.add_argument("--form", choices=get_args(Form), help="instead of the recipe's")
    build.add_argument("--seed", type=int, help="instead of the recipe's")
    build.add_argument(
        "--processes",
        type=int,
        metavar="P",
        help="cores to use (default: all); the result does not depend on it",
    )
    build.add_argument(
        "--host",
        metavar="URL",
        help="make each prompt, chat template included, exactly T tokens as this endpoint counts them",
    )
    build.add_argument("--model", help="model of --host (default: the one that it serves)")
    build.add_argument(
        "--api",
        choices=("chat", "completions"),
        default="chat",
        help="API that the prompts are for (default: chat)",
    )
    build.add_argument(
        "--api-key-env",
        default="OPENAI_API_KEY",
        metavar="VAR",
        help="environment variable with the endpoint's key (default: OPENAI_API_KEY)",
    )
    build.add_argument("--json", action="store_true", help="print the outcome as JSON")


def run(args: argparse.Namespace) -> int:
    return _build(args)


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
        out=Path(args.out),
        tokenizer=tokenizer,
        progress=_progress if sys.stderr.isatty() else None,
        processes=args.processes,
        endpoint=endpoint,
    )
    if args.json:
        import msgspec

        sys.stdout.write(msgspec.json.encode(_outcome(args.out, built)).decode() + "\n")
    else:
        _show(args.out, built)
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


def _outcome(out: str, built: Built) -> dict[str, Any]:
    found = built.contexts
    return {
        "folder": out,
        "contexts": len(found.contexts),
        "tokens": found.tokens,
        "tokenizer": found.tokenizer,
        "tokenizer_fingerprint": found.tokenizer_fingerprint,
        "content_hash": found.content_hash,
        "max_common_prefix": found.max_common_prefix,
        "layout": built.layout,
        "corpus": found.contexts[0].corpus,
        "commit": found.contexts[0].commit,
        "account": built.account.as_dict(),
    }


def _show(out: str, built: Built) -> None:
    from rich.console import Console
    from rich.table import Table

    found, account = built.contexts, built.account
    first = found.contexts[0]
    console = Console(highlight=False)
    commit = f" at {first.commit[:12]}" if first.commit else ""
    console.print(
        f"{len(found.contexts)} contexts of exactly {found.tokens:,} {found.tokenizer} tokens from {first.corpus}{commit} in {out}",
        markup=False,
        soft_wrap=True,
    )
    for remark in built.remarks:
        console.print(remark, markup=False, soft_wrap=True)
    table = Table(title="files", title_justify="left", show_edge=False, pad_edge=False)
    table.add_column("")
    table.add_column("files", justify="right")
    table.add_column("bytes", justify="right")
    table.add_row("in contexts", f"{built.files_used:,}", f"{built.bytes_used:,}")
    table.add_row("not needed", f"{built.files_spare:,}", "")
    for reason, files, size in account.reasons():
        table.add_row(f"left out: {reason}", f"{files:,}", f"{size:,}")
    console.print(table)
