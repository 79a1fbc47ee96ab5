"""Run folders: one a run, named after the time, never overwritten."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from time import monotonic_ns

from loadgen.errors import InputError


def new_run_dir(root: Path) -> Path:
    """`root/<UTC>-<id>`, made now. Raises InputError when it cannot be."""
    stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%SZ")
    for number in range(1000):
        folder = root / f"{stamp}-{(monotonic_ns() + number) & 0xFFFFFF:06x}"
        try:
            folder.mkdir(parents=True)
            return folder
        except FileExistsError:
            continue
        except OSError as error:
            raise InputError(
                f"{folder} cannot be made: {error.strerror}; name another folder with --out"
            ) from None
    raise InputError(f"no run folder can be made in {root}")
