"""A simulated endpoint on a free port, and a way to run the command line as a user does."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from processes import Process

from loadgen.experiment.simulated import simulated_endpoint


@pytest.fixture(scope="session")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One cache for all tests of a session: contexts are built once."""
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """A simulated endpoint with offload; tests make their prompts their own by their nonces."""
    with simulated_endpoint("blog", "offload", 50.0) as url:
        yield url


@pytest.fixture
def loadgen(cache: Path) -> Callable[..., Process]:
    def start(*words: str, env: dict[str, str] | None = None) -> Process:
        return Process([sys.executable, "-m", "loadgen", *words], cache, env)

    return start
