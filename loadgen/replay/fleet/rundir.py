"""Run folders: one a run, named after the time, never overwritten."""

from __future__ import annotations

import fcntl
from datetime import UTC, datetime
from pathlib import Path
from time import monotonic_ns
from typing import IO

from loadgen.errors import InputError

LOCK_FILE = ".lock"


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


def lock(run_dir: Path) -> IO[bytes]:
    """Hold a run folder for as long as the returned file is open. Raises InputError when somebody else does: a run that is
    still under way must not be written by two."""
    file = (run_dir / LOCK_FILE).open("ab")
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        file.close()
        raise InputError(f"{run_dir} belongs to a run that is still under way") from None
    return file
