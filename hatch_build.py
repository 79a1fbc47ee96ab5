"""Build hook: the commit that a wheel or an sdist was made from goes into it as `loadgen/_commit.txt`.

A wheel made from an sdist has no git around it and finds the file already there. Nothing else differs between two builds
of one commit, so with the same SOURCE_DATE_EPOCH they are equal to the byte.
"""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME = "loadgen/_commit.txt"


class CommitHook(BuildHookInterface):  # type: ignore[misc]  # hatchling is there only while a build runs
    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        root = Path(self.root)
        if version == "editable" or (root / NAME).is_file() or not (root / ".git").exists():
            return
        command = ["git", "-c", f"safe.directory={root}", "-C", str(root), "rev-parse", "--short=12", "HEAD"]
        try:
            asked = subprocess.run(command, capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            return  # no git here: the version stands alone
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / "commit"
        file.write_text(asked.stdout)
        build_data["force_include"][str(file)] = NAME

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()
