"""The end of a run: report, a check of the merged histograms, the rules, and the exit code."""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path

from rich.console import Console

from loadgen.errors import EXIT_INTERNAL, EXIT_INTERRUPTED, EXIT_INVALID, EXIT_OK, InputError
from loadgen.measure.run import write_run as write_run_file
from loadgen.replay.fleet.master import Master
from loadgen.report.gate import gate
from loadgen.report.slo import read_slo
from loadgen.report.terminal import print_verdict
from loadgen.report.words import printable
from loadgen.report.write import REPORT_FILE, write_run

log = logging.getLogger("loadgen")


def conclude(master: Master, slo: str | None, *, interrupted: bool) -> int:
    """Build the report of the run that `master` has just finished, and judge it; returns the exit code."""
    info, run_dir = master.info, master.run_dir
    assert info is not None
    assert run_dir is not None
    code = EXIT_INTERRUPTED if interrupted else EXIT_INVALID
    try:
        measured = write_run(run_dir)
        if not (master.lost or info.resumed):  # else the workers' snapshots are not the whole run
            info.merged_exactly = master.merged().snapshot() == measured.histograms.snapshot()
            write_run_file(run_dir, info)
        if not os.environ.get("LOADGEN_QUIET"):  # else `loadgen run` shows them under its table
            for one in measured.reasons:
                print(f"INVALID {one.code}: {printable(str(one))} {one.remedy}", file=sys.stderr)
        if not (interrupted or measured.reasons):
            code = EXIT_OK
            if slo is not None:
                verdict = gate([run_dir], read_slo(Path(slo)))
                print_verdict(verdict, Console(stderr=True))
                code = verdict.exit_code
        if any(incident.code == "internal_error" for incident in info.incidents):
            code = EXIT_INTERNAL
    except InputError as error:  # no turn was measured
        print(f"loadgen: {error}", file=sys.stderr)
    except Exception:
        log.exception("the report of %s could not be built; `loadgen report` can try again", run_dir)
        code = EXIT_INTERNAL
    print(f"run folder: {run_dir}", file=sys.stderr)
    if not os.environ.get("LOADGEN_QUIET") and (run_dir / REPORT_FILE).is_file():
        print(f"report: {run_dir / REPORT_FILE}", file=sys.stderr)
    return code
