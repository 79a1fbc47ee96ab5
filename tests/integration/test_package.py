"""The package as it would be released: `deploy/package.py` builds, compares, lists, installs and runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.nightly
@pytest.mark.skipif(
    not (ROOT / ".git").exists() or shutil.which("git") is None, reason="needs a git checkout"
)
def test_the_package_is_reproducible_complete_and_runs(tmp_path: Path) -> None:
    pytest.importorskip("build", reason="needs `build`")
    pythons = [name for name in ("python3.11", "python3.12", "python3.13", "python3.14") if works(name)] or [
        sys.executable
    ]
    words = [word for python in pythons for word in ("--python", python)]
    done = subprocess.run(
        [sys.executable, str(ROOT / "deploy" / "package.py"), *words, "--out", str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("runs on Python") == len(pythons)


def works(python: str) -> bool:
    """Whether a Python of that name is there; a version manager's stub is not one."""
    if shutil.which(python) is None:
        return False
    asked = subprocess.run([python, "-c", ""], capture_output=True, check=False, env=dict(os.environ))
    return asked.returncode == 0
