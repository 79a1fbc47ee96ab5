"""Summary, statistics, comparison, gates, and the forms in which they are shown. Everything is rebuilt from the samples."""

from __future__ import annotations

from pathlib import Path


def build(run_dir: Path) -> None:
    """Write `summary.json`, `turns.hlog` and `report.html` of a run folder. Raises InputError when it is none."""
    from loadgen.report.write import write_run  # numpy and scipy load only when a report is made

    write_run(run_dir)
