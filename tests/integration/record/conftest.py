"""The `recorder` fixture."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent))

from record_process import Recorder


@pytest.fixture
def recorder(tmp_path: Path) -> Iterator[Callable[..., Recorder]]:
    """Starts recorders in front of a given upstream and leaves none behind."""
    with ExitStack() as stack:

        def start(upstream: str, *options: str, name: str = "my.jsonl", **popen: Any) -> Recorder:
            made = Recorder(upstream, tmp_path / name, *options, **popen)
            stack.callback(lambda: made.process.poll() is None and made.kill())
            return made

        yield start
