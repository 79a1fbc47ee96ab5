"""A closed pipe or a full disk behind standard output changes neither the verdict nor the exit code's meaning."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys, types
from loadgen import cli
module = types.ModuleType("chatty")
module.add_arguments = lambda parser: None
def run(args):
    from rich.console import Console
    for number in range(2000):
        print("line", number)
        Console().print("rich", number)
    return 1
module.run = run
sys.modules["chatty"] = module
cli.COMMANDS["chatty"] = ("chatty", "says much and fails")
sys.exit(cli.main(["chatty"]))
"""


def test_a_reader_that_leaves_does_not_change_the_exit_code() -> None:
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.readline()
    process.stdout.close()
    said = process.stderr.read()
    process.stderr.close()
    assert (process.wait(timeout=60), said) == (1, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
@pytest.mark.parametrize(
    "words", [("--version",), ("explain", "3"), ("explain", "3", "--json"), ("path", "benchmark.toml")]
)
def test_a_full_disk_is_a_sentence(words: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "loadgen", *words],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
        )
    assert "internal error" not in done.stderr
    assert "Traceback" not in done.stderr
    assert done.returncode in (2, 120)
    assert "No space left on device" in done.stderr


def test_a_closed_standard_output_is_no_error() -> None:
    done = subprocess.run(
        f"{sys.executable} -m loadgen explain 3 >&-", shell=True, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
