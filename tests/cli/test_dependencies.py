"""What the package imports, it asks for: an environment with only the declared dependencies must do."""

from __future__ import annotations

import ast
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
THROUGH = {  # parts of another dependency's public face
    "gevent": "locust",
    "flask": "locust",
    "multidict": "aiohttp",
    "yarl": "aiohttp",
}
FOR_ITS_FILES = {"mistral-common"}  # the Tekken tokenizers' files, read without importing it
TOOLS = {
    "loadgen",
    "hatchling",
    "atheris",
}  # ourselves; the build's; the fuzz target's, where it is installed


def imported() -> dict[str, str]:
    """Top-level modules that the package imports anywhere, with one place each."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "loadgen").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                names = [node.module]
            for name in names:
                found.setdefault(name.partition(".")[0], str(path.relative_to(ROOT)))
    return {
        name: place
        for name, place in found.items()
        if name not in sys.stdlib_module_names and name not in TOOLS
    }


def declared() -> set[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    asked = [*project["dependencies"], *(line for name in ("hf", "otel") for line in extras[name])]
    return {re.match(r"[\w.-]+", line)[0].lower().replace("_", "-") for line in asked}  # type: ignore[index]


def test_every_import_is_of_a_declared_dependency() -> None:
    distributions = packages_distributions()
    known = declared()
    undeclared = {}
    for module, place in imported().items():
        candidates = {name.lower().replace("_", "-") for name in distributions.get(module, [module])}
        if THROUGH.get(module) not in known and not candidates & known:
            undeclared[module] = place
    assert undeclared == {}


def test_everything_declared_is_used() -> None:
    """A dependency that nothing imports is one that nobody would miss."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    required = {re.match(r"[\w.-]+", line)[0].lower() for line in project["dependencies"]}  # type: ignore[index]
    distributions = packages_distributions()
    used = {
        name.lower().replace("_", "-")
        for module in imported()
        for name in distributions.get(module, [module])
    }
    assert {name for name in required if name.replace("_", "-") not in used} == FOR_ITS_FILES
