"""Writes what a report leaves in a run folder; each file appears whole or not at all."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import msgspec

from loadgen.measure.hlog import write_log
from loadgen.outfile import write_file
from loadgen.report.compare import Comparison
from loadgen.report.html import page
from loadgen.report.sides import Side, average
from loadgen.report.summary import SUMMARY_FILE, Measured, measure, summary_of

REPORT_FILE = "report.html"
LOG_FILE = "turns.hlog"


def write_run(run_dir: Path) -> Measured:
    """Measure a run folder and write its summary, HdrHistogram log and report."""
    run = measure(run_dir)
    write_file(
        run_dir / SUMMARY_FILE,
        msgspec.json.format(msgspec.json.encode(summary_of(run)), indent=1).decode() + "\n",
    )
    wall_ns = run.turns.intended_ns.min() if len(run.turns) else 0
    length_ns = run.turns.end_ns.max() - wall_ns if len(run.turns) else 0
    write_log(
        run_dir / LOG_FILE, run.histograms, start_s=float(wall_ns) / 1e9, length_s=float(length_ns) / 1e9
    )
    write_file(run_dir / REPORT_FILE, page([run]))
    return run


def write_compared(path: Path, runs: Sequence[Measured]) -> Path:
    """Write one report of several runs, arms side by side; returns `path`."""
    write_file(path, page(runs))
    return path


def write_comparison(path: Path, sides: Sequence[Side], found: Sequence[Comparison]) -> None:
    """Write one report: figures are means over each side's runs, charts show the first run of each, the comparison all."""
    runs = [measure(side.folders[0]) for side in sides]
    summaries = [average(side.summaries) | {"arm": side.label} for side in sides]
    write_file(path, page(runs, found, summaries))
