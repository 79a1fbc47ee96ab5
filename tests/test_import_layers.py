"""Imports go down, never up; gevent and Locust stay in replay."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parent.parent / "loadgen"

# From the bottom up. A package may import those below it; beside it only where that is said.
LAYERS = [
    {"errors", "__version__"},
    {"version", "outfile", "lifeline", "signals", "descriptors"},
    {"paths", "tokens", "trace", "sizing", "measure"},
    {"corpus", "record", "sim", "report"},
    {"observe"},
    {"replay"},
    {"doctor", "locust_help"},
    {"experiment"},
    {"cli"},
    {"__main__"},
]
BESIDE = {("paths", "errors")}
# replay.plugin is an entry point like cli: it builds the report of a bare `locust` run and shows its live figures.
ENTRY = {"conclude.py", "webui.py", "launch.py", "prepare.py", "starter.py"}

FILES = [path for path in PACKAGE.rglob("*.py") if "data" not in path.relative_to(PACKAGE).parts]


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
    return found


def rank(name: str) -> int:
    return next(number for number, layer in enumerate(LAYERS) if name in layer)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_imports_go_down(path: Path) -> None:
    parts = path.relative_to(PACKAGE).parts
    own = parts[0] if len(parts) > 1 else path.stem
    if own == "__init__":
        return
    for name in imports(path):
        if not name.startswith("loadgen."):
            continue
        other = name.split(".")[1]
        if other != own and (own, other) not in BESIDE:
            assert rank(other) < rank(own), f"{path} imports {name}"
        if own == "replay" and other in ("report", "observe"):
            assert path.name in ENTRY, f"{path} imports {name}; only the entry points of replay may"


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_only_replay_knows_locust(path: Path) -> None:
    own = path.relative_to(PACKAGE).parts[0]
    foreign = {name.split(".")[0] for name in imports(path)}
    assert own in ("replay", "locust_help.py") or not foreign & {"locust", "gevent"}


def test_the_sample_depends_on_nothing_of_ours() -> None:
    assert not any(name.startswith("loadgen") for name in imports(PACKAGE / "measure" / "sample.py"))
