"""The live page: plain HTML and a script, both constant; every figure comes as JSON and is put in as text."""

from __future__ import annotations

from importlib.resources import files


def page() -> str:
    return _file("live.html")


def script() -> str:
    return _file("live.js")


def _file(name: str) -> str:
    return files("loadgen.observe").joinpath(name).read_text(encoding="utf-8")
