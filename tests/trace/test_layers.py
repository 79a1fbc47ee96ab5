"""`trace` stands below everything but `tokens`: it imports no other package of ours."""

from __future__ import annotations

import ast
from pathlib import Path

import loadgen.trace

ALLOWED = ("loadgen.outfile", "loadgen.trace", "loadgen.errors", "loadgen.paths")


def test_trace_imports_nothing_from_above() -> None:
    root = Path(loadgen.trace.__file__).parent
    found = {
        (path.name, node.module)
        for path in root.rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom)
        and node.module
        and node.module.startswith("loadgen")
        and not node.module.startswith(ALLOWED)
    }
    assert found == set()
