"""From preparation to Locust: a file that holds the job and the facts for `run.json`.

Preparation reads repositories, tokenizes and uses processes; Locust's process has gevent's patches from its first
import on. So preparation is always done in another process, and this file is what passes between them.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from loadgen.errors import InputError, LoadgenError
from loadgen.measure.run import RunInfo
from loadgen.replay.job import Job
from loadgen.replay.options import Options, to_arguments

HANDOVER_ENV = "LOADGEN_HANDOVER"


class Handover(msgspec.Struct, kw_only=True):
    job: Job
    facts: dict[str, Any]
    out: str
    run_dir: str | None
    arguments: list[str]
    slo: str | None = None
    resumed: RunInfo | None = None  # the run goes on; `done` tells how many turns of each session are over
    done: dict[str, int] = {}


def copy_of(handover: Handover) -> Handover:
    """A copy that a run may change: the web UI can start several from one preparation."""
    return msgspec.json.decode(msgspec.json.encode(handover), type=Handover)


def write_handover(handover: Handover) -> Path:
    """A private temporary file; whoever reads it removes it."""
    descriptor, name = tempfile.mkstemp(prefix="loadgen-", suffix=".json")
    with os.fdopen(descriptor, "wb") as file:
        file.write(msgspec.json.encode(handover))
    return Path(name)


def read_handover(path: Path) -> Handover:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Handover)
    except (OSError, msgspec.DecodeError) as error:
        raise InputError(f"what was prepared in {path} cannot be read: {error}") from None
    finally:
        path.unlink(missing_ok=True)


def prepare_apart(options: Options, host: str) -> Handover:
    """Prepare in a process of its own. Its words go to our standard error. Raises the error that it ended with."""
    command = [
        sys.executable,
        "-m",
        "loadgen",
        "run",
        "--prepare-only",
        "--host",
        host,
        *to_arguments(options),
    ]
    done = subprocess.run(command, capture_output=True, check=False)
    words = done.stderr.decode("utf-8", "replace").strip()
    if done.returncode:
        error = InputError if done.returncode == InputError.exit_code else LoadgenError
        raise error(words.removeprefix("loadgen: ") or "the preparation failed without a word")
    if words:
        print(words, file=sys.stderr)
    return read_handover(Path(done.stdout.decode().strip()))
