"""The host's figures for people and for machines: one dictionary, one way to print it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from loadgen.errors import InputError
from loadgen.measure.probes.host import Window, clock_offset, read_host, windows, within
from loadgen.measure.probes.host_rates import (
    FORMULAS,
    cache_suspicions,
    disk_rates,
    gds_bypassed,
    link_rates,
    nfs_rates,
    seconds,
)
from loadgen.measure.probes.host_sampler import describe


def host_report(path: Path, run_dir: Path | None) -> dict[str, Any]:
    """Rates over the whole file, or over each round of a run when `run_dir` is given.

    Rounds are placed by wall time, so the report says how far the two machines' clocks may be apart. Raises
    InputError when the file holds no two samples, or does not cover any of the run.
    """
    log = read_host(path)
    if len(log.ticks) < 2:
        raise InputError(f"{path} holds {len(log.ticks)} samples; rates need two")
    found: list[Window] = (
        windows(run_dir)
        if run_dir
        else [Window("all samples", log.ticks[0]["wall_ns"], log.ticks[-1]["wall_ns"])]
    )
    offset = clock_offset(log.header, describe()) if run_dir else None
    parts = []
    for window in found:
        pair = within(log, window)
        if pair is None:
            continue
        a, b = pair
        parts.append(
            {
                "label": window.label,
                "seconds": seconds(a, b),
                "nfs": [asdict(rates) for rates in nfs_rates(a, b)],
                "links": [asdict(link) for link in link_rates(a, b, log.header.get("links_bits_s", {}))],
                "disks": [asdict(disk) for disk in disk_rates(a, b)],
                "page_cache": [str(suspicion) for suspicion in cache_suspicions(a, b, window.claimed)],
                "gds_bypassed": gds_bypassed(a, b),
            }
        )
    if not parts:
        raise InputError(
            f"{path} does not cover the time of {run_dir}; sample before, during and after a run"
        )
    return {
        "host": log.header.get("host"),
        "samples": len(log.ticks),
        "damaged_lines": log.damaged,
        "mounts": log.header.get("nfs", {}),
        "windows": parts,
        "not_covered": [w.label for w in found if w.label not in {p["label"] for p in parts}],
        "clock_offset": None if offset is None else {**asdict(offset), "proven": offset.proven},
        "formulas": FORMULAS,
    }


def print_report(report: dict[str, Any]) -> None:
    """The same as tables, with the formulas of what is in them."""
    from rich.console import Console
    from rich.markup import escape

    console = Console()
    console.print(f"{escape(str(report['host']))}: {report['samples']} samples", highlight=False)
    if report["damaged_lines"]:
        console.print(f"{report['damaged_lines']} lines could not be read and were left out")
    used: set[str] = set()
    for part in report["windows"]:
        console.print(f"\n[bold]{escape(part['label'])}[/bold], {part['seconds']:.1f} s", highlight=False)
        if part["nfs"]:
            used |= {"GB/s", "wire GB/s", "ops/s", "KiB/op", "RTT", "depth"}
            rows: list[tuple[str, ...]] = [
                (
                    f"{op['op']} {op['mount']}",
                    "-" if op["payload_gb_s"] is None else f"{op['payload_gb_s']:.3f}",
                    f"{op['wire_gb_s']:.3f}",
                    f"{op['ops_s']:,.0f}",
                    f"{op['kib_op']:,.1f}",
                    f"{op['rtt_ms']:.3f}",
                    f"{op['depth']:.1f}",
                    str(op["retransmissions"]),
                )
                for op in part["nfs"][:8]
            ]
            console.print(
                _table(("NFS", "GB/s", "wire GB/s", "ops/s", "KiB/op", "RTT ms", "depth", "resent"), rows)
            )
        if part["links"]:
            used.add("use")
            rows = [
                (
                    link["link"],
                    f"{link['in_gb_s']:.3f}",
                    f"{link['out_gb_s']:.3f}",
                    "rate unknown" if link["use"] is None else f"{link['use']:.1%}",
                )
                for link in part["links"]
            ]
            console.print(_table(("link", "in GB/s", "out GB/s", "use"), rows))
        if part["disks"]:
            rows = [
                (d["disk"], f"{d['read_gb_s']:.3f}", f"{d['write_gb_s']:.3f}", f"{d['depth']:.1f}")
                for d in part["disks"]
            ]
            console.print(_table(("disk", "read GB/s", "write GB/s", "depth"), rows))
        for suspicion in part["page_cache"]:
            console.print(f"page cache: {escape(suspicion)}", highlight=False)
        if part["gds_bypassed"]:
            console.print(
                "GPUDirect Storage moved nothing here: reads went through main memory (compatibility mode)"
            )
    for label in report["not_covered"]:
        console.print(f"{label}: not covered by the samples", highlight=False)
    offset = report["clock_offset"]
    if offset is not None:
        bound = "unknown" if offset["bound_s"] is None else f"at most {offset['bound_s'] * 1e3:.1f} ms"
        verdict = "" if offset["proven"] else "; rounds may be shifted against the samples"
        console.print(f"clock offset: {bound} ({offset['why']}){verdict}", highlight=False)
    for name in FORMULAS:
        if name in used:
            console.print(f"{name}: {FORMULAS[name]}", highlight=False)


def _table(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> Any:
    from rich.box import SIMPLE_HEAD
    from rich.markup import escape
    from rich.table import Table

    table = Table(box=SIMPLE_HEAD, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(escape, row))
    return table
