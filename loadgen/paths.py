"""Where shipped files and caches are.

In a wheel, `locustfiles/`, `corpora/`, `traces/`, `workloads/` and `examples/` live under `loadgen/data`; in a checkout
they stand at the top. `find` hides the difference.
"""

from __future__ import annotations

import os
from pathlib import Path

from loadgen.errors import InputError

_PACKAGE = Path(__file__).resolve().parent
KINDS = ("locustfiles", "corpora", "traces", "workloads", "examples")


def data_dir(kind: str) -> Path:
    """Folder of one kind of shipped files (`kind` is one of `KINDS`)."""
    wheel = _PACKAGE / "data" / kind
    return wheel if wheel.is_dir() else _PACKAGE.parent / kind


def find(name: str) -> Path:
    """Path of a shipped file by its name, `agent_loop.py` or `corpora/benchmark.toml`.

    Raises InputError naming the files that exist when there is none of that name.
    """
    for kind in KINDS:
        folder = data_dir(kind)
        for candidate in (folder / name, folder.parent / name):
            if candidate.is_file() and candidate.resolve().is_relative_to(folder.resolve()):
                return candidate
    known = sorted(f"{kind}/{p.name}" for kind in KINDS for p in data_dir(kind).glob("[!.]*.*"))
    raise InputError(f"no shipped file is called {name!r}; there are: {', '.join(known)}")


def cache_dir(*parts: str) -> Path:
    """A folder under the user's cache (`LOADGEN_CACHE`, else `XDG_CACHE_HOME/loadgen`, else `~/.cache/loadgen`), made if absent."""
    root = os.environ.get("LOADGEN_CACHE")
    base = (
        Path(root) if root else Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "loadgen"
    )
    folder = base.joinpath(*parts)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise InputError(
            f"the cache folder {folder} cannot be made: {error.strerror}; set LOADGEN_CACHE to another place"
        ) from None
    return folder
