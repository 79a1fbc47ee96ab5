"""loadgen's flags in `locust -f agent_loop.py --help`.

Locust prints its help before it reads the locustfile, so a locustfile's flags never stand in it. But it first tries to
import `locust_plugins`, to let plugins add theirs. `loadgen-locust.pth` (installed beside the package) calls
`install` in Locust's processes; from then on, when nobody else provides that module, it is this: the flags, and only
when help is asked for a locustfile of ours.
"""

from __future__ import annotations

import importlib.abc
import importlib.machinery
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

_PLUGINS = "locust_plugins"


def wanted(arguments: Sequence[str]) -> bool:
    """Whether these are Locust's arguments asking for help on a locustfile that imports loadgen."""
    if not {"-h", "--help"} & set(arguments):
        return False
    for option, value in zip(arguments, [*arguments[1:], ""], strict=True):
        name = (
            value
            if option in ("-f", "--locustfile")
            else option.removeprefix("--locustfile=")
            if "=" in option
            else ""
        )
        if name and any(_imports_loadgen(Path(part)) for part in name.split(",")):
            return True
    return False


def _imports_loadgen(path: Path) -> bool:
    try:
        return (
            re.search(r"^\s*(from|import) loadgen\b", path.read_text(encoding="utf-8"), re.MULTILINE)
            is not None
        )
    except (OSError, UnicodeDecodeError):
        return False


class _Finder(importlib.abc.MetaPathFinder):
    """Last on the path: a real `locust_plugins` wins. Importable by this name, it adds the flags."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(fullname, _Loader()) if fullname == _PLUGINS else None


class _Loader(importlib.abc.Loader):
    def exec_module(self, module: ModuleType) -> None:
        from locust import events

        from loadgen.replay.options import add_flags

        hooks: Any = events  # Locust's event hooks are untyped
        hooks.init_command_line_parser.add_listener(lambda parser, **_: add_flags(parser))


def install() -> None:
    """Called at interpreter start in processes that look like Locust's. Does nothing unless help is asked for."""
    if wanted(sys.orig_argv[1:]):
        sys.meta_path.append(_Finder())
