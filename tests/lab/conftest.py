"""Real servers: LAB names the folder that lab/cpu/install.sh filled; the tests start and stop its servers themselves."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.lab.server import Lab


@pytest.fixture(scope="session")
def lab() -> Iterator[Lab]:
    folder = os.environ.get("LAB")
    if not folder or not (Path(folder) / ".installed").exists():
        pytest.skip("LAB does not name a folder that lab/cpu/install.sh filled")
    found = Lab(Path(folder))
    yield found
    found.down()


@pytest.fixture(scope="session")
def warm(lab: Lab) -> Lab:
    """The arm with LMCache, its pool small enough that four prompts of 6,000 tokens overflow it."""
    lab.up("lmcache", fresh=True)
    return lab
