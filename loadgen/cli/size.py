"""`loadgen size`: KV bytes, residency, break-even, and what to run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loadgen.sizing.plan import Figure


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "model", help="a known model, its config.json or params.json, or the folder that holds it"
    )
    parser.add_argument("--context", type=int, default=140_000, help="tokens of a context (default: 140000)")
    parser.add_argument("--tp", type=int, default=1, help="tensor parallel size (default: 1)")
    parser.add_argument(
        "--dtype", choices=("bf16", "fp16", "fp8", "fp32"), default="bf16", help="type of the KV cache"
    )
    parser.add_argument(
        "--no-hybrid", action="store_true", help="hybrid KV manager off: sliding layers keep everything"
    )
    parser.add_argument("--sessions", type=int, help="contexts that take turns")
    parser.add_argument("--pool-gb-per-gpu", type=float, help="KV pool of a GPU without offload, GB")
    parser.add_argument(
        "--staging-gib-per-gpu", type=float, help="staging buffer of a GPU, GiB (default: two loads)"
    )
    parser.add_argument("--read-gb-s", type=float, help="payload of the storage link, GB/s")
    parser.add_argument("--cold-s", type=float, help="measured TTFT of a context with nothing cached")
    parser.add_argument("--fixed-s", type=float, help="TTFT of a loaded context without the transfer")
    parser.add_argument(
        "--write-tax-s", type=float, help="how much longer a first turn takes because it stores"
    )
    parser.add_argument(
        "--profile", help="take the four figures above from a machine's profile (loadgen sim)"
    )
    parser.add_argument("--new-contexts-per-day", type=float, help="for the growth of the store")
    parser.add_argument("--chunk", type=int, default=256, help="tokens of a stored object (default: 256)")
    parser.add_argument(
        "--emit", metavar="DIR", help="write the commands of all arms and LMCache's YAML there"
    )
    parser.add_argument(
        "--lmcache-version", help="whose key names to use (default: the installed one, else the newest known)"
    )
    parser.add_argument(
        "--gds-path", default="/mnt/kv", help="folder of the KV store, for --emit (default: /mnt/kv)"
    )
    parser.add_argument("--gpu-memory-gib", type=float, help="memory of a GPU, for --emit")
    parser.add_argument(
        "--gpu-memory-utilization", type=float, default=0.92, help="vLLM's share, for --emit (default: 0.92)"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(args: argparse.Namespace) -> int:
    import json
    from pathlib import Path

    import msgspec

    from loadgen.sizing import emit, models
    from loadgen.sizing.plan import Assumptions, plan

    shape = models.find(args.model)
    given = Assumptions(
        context=args.context,
        tp=args.tp,
        dtype=args.dtype,
        hybrid=not args.no_hybrid,
        pool_gb_per_gpu=args.pool_gb_per_gpu,
        sessions=args.sessions,
        staging_gib_per_gpu=args.staging_gib_per_gpu,
        read_gb_s=args.read_gb_s,
        cold_s=args.cold_s,
        fixed_s=args.fixed_s,
        write_tax_s=args.write_tax_s,
        new_contexts_per_day=args.new_contexts_per_day,
        chunk=args.chunk,
    )
    if args.profile:
        from loadgen.sim.estimate import fill
        from loadgen.sim.profile import load

        given = fill(given, load(args.profile))
    figures = plan(shape, given)
    values = {figure.key: figure.value for figure in figures}
    written: list[Path] = []
    if args.emit:
        left, staging = values["contexts_in_hbm_with_staging"], values["staging_gib_per_gpu"]
        assert staging is not None
        written = emit.write(
            Path(args.emit),
            args.model,
            given,
            staging_gib=staging,
            resident_tokens=None if left is None else left * given.context,
            gpu_memory_gib=args.gpu_memory_gib,
            utilization=args.gpu_memory_utilization,
            gds_path=args.gds_path,
            version=emit.lmcache_version(args.lmcache_version),
            sliding=shape.sliding_layers > 0,
        )
    if args.json:
        formulas = {figure.key: figure.formula for figure in figures}
        facts = {"model": shape.name, "given": msgspec.to_builtins(given), **values, "formulas": formulas}
        print(json.dumps({**facts, "files": [str(path) for path in written]}, indent=1))
        return 0
    _print(shape.name, figures)
    for path in written:
        print(path)
    return 0


def _print(name: str, figures: Sequence[Figure]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    table = Table(title=escape(name), title_justify="left", box=None, pad_edge=False)
    table.add_column("")
    table.add_column("", justify="right")
    table.add_column("")
    table.add_column("formula")
    for figure in figures:
        value = (
            "-"
            if figure.value is None
            else f"{figure.value:,.0f}"
            if figure.value >= 1000
            else f"{figure.value:.4g}"
        )
        table.add_row(figure.title, value, figure.unit, escape(figure.formula))
    Console().print(table)
