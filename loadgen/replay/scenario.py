"""A locustfile's workload: one line, and a workload file's values are the defaults of Locust's run.

    from loadgen.replay.scenario import workload
    workload("rag.toml")

The values go into the environment variables that stand behind the flags, so flags and variables that are set still win.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from loadgen.errors import InputError
from loadgen.replay.options import read_workload

_LOCUSTS = {
    "host": "LOCUST_HOST",
    "users": "LOCUST_USERS",
    "processes": "LOCUST_PROCESSES",
    "run_time": "LOCUST_RUN_TIME",
}


def workload(name: str) -> None:
    """Take the defaults from a workload file: a path, or the name of a shipped one. To be called before Locust parses its
    command line, which is while it reads the locustfile. Exit code 2 when there is no such file or it makes no sense."""
    try:
        values = read_workload(Path(name))
    except InputError as error:
        print(f"loadgen: {error}", file=sys.stderr)
        raise SystemExit(error.exit_code) from None
    for key, value in values.items():
        variable = _LOCUSTS.get(key, f"LOADGEN_{key.upper()}")
        text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
        os.environ.setdefault(variable, text)
