"""Which loadgen this is: the version, and the commit where it is known."""

from __future__ import annotations

import subprocess
from pathlib import Path

from loadgen import __version__

_PACKAGE = Path(__file__).resolve().parent
_WRITTEN = _PACKAGE / "_commit.txt"  # by hatch_build.py, in wheels and sdists


def commit() -> str | None:
    """The commit that this package was built from, or that the checkout it runs from stands at (`+` when files differ
    from it). None when neither is known."""
    if _WRITTEN.is_file():
        return _WRITTEN.read_text().strip() or None
    checkout = _PACKAGE.parent
    if not (checkout / ".git").exists():
        return None
    try:
        found = subprocess.run(
            ["git", "-C", str(checkout), "describe", "--always", "--exclude=*", "--abbrev=12", "--dirty=+"],
            capture_output=True,
            text=True,
            timeout=10,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def describe() -> str:
    """`0.1.0 (4f9a…)`, or the version alone."""
    known = commit()
    return f"{__version__} ({known})" if known else __version__
