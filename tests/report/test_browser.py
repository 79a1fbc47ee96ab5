"""The report's script runs in a real browser: every chart is drawn and nothing is logged as an error. Needs chromium."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from synthetic import sweep

from loadgen.measure.sample import ErrorClass, Sample
from loadgen.report.compare import compare
from loadgen.report.sides import read_sides, split
from loadgen.report.write import write_comparison, write_run

MakeRun = Callable[..., Path]
CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")

pytestmark = [pytest.mark.nightly, pytest.mark.skipif(CHROMIUM is None, reason="no chromium on this machine")]


def dom_of(page: Path) -> str:
    command = [
        str(CHROMIUM),
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--enable-logging=stderr",
        "--virtual-time-budget=3000",
    ]
    found = subprocess.run(
        [*command, "--dump-dom", page.as_uri()], capture_output=True, text=True, timeout=120, check=True
    )
    assert "Uncaught" not in found.stderr, found.stderr
    return found.stdout


def assert_drawn(page: Path) -> None:
    figures = re.split(r"<figure ", dom_of(page))[1:]
    assert len(figures) >= 6
    for figure in figures:
        assert "<canvas" in figure, figure[:80]


def failed(samples: list[Sample]) -> list[Sample]:
    for sample in samples:
        sample.first_token_ns = sample.last_token_ns = None
        sample.error = ErrorClass.RESET
    return samples


def test_one_run(make_run: MakeRun) -> None:
    folder = make_run(
        [*list(sweep())[:-5], *failed(list(sweep())[-5:])], schedule={"kind": "sweep", "width": 1}
    )
    write_run(folder)
    assert_drawn(folder / "report.html")


def test_several_arms_of_which_one_never_answered(make_run: MakeRun) -> None:
    off, on = (
        make_run(sweep(), name="a", arm="off"),
        make_run(failed(list(sweep(arm="on"))), name="b", arm="on"),
    )
    sides = read_sides(split([off, on]))
    page = off.parent / "c.html"
    write_comparison(page, sides, [compare(*sides)])
    assert_drawn(page)
