"""Room in the table of descriptors; each in a process of its own, since a limit once raised stays so."""

from __future__ import annotations

import subprocess
import sys

import pytest

REPORT = """
import os, resource, sys
from loadgen.descriptors import widen
before = set(os.listdir("/dev/fd"))
widen(int(sys.argv[1]))
assert set(os.listdir("/dev/fd")) == before, "a descriptor stayed open"
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], os.popen(f"grep FDSize /proc/{os.getpid()}/status").read().split()[-1] if sys.platform == "linux" else 0)
"""


def widened(limits: str, count: int) -> tuple[int, int]:
    """Soft limit and size of the table after `widen(count)`."""
    done = subprocess.run(
        ["/bin/sh", "-c", f'{limits}; exec "$@"', "sh", sys.executable, "-c", REPORT, str(count)],
        capture_output=True,
        text=True,
        check=True,
    )
    soft, size = done.stdout.split()
    return int(soft), int(size)


@pytest.mark.parametrize(
    ("limits", "count", "soft"),
    [("ulimit -n 2000", 900, 2000), ("ulimit -S -n 200", 900, 900), ("ulimit -n 200", 900, 200)],
)
def test_the_table_has_room_before_it_is_needed(limits: str, count: int, soft: int) -> None:
    found, size = widened(limits, count)
    assert found == soft
    if sys.platform == "linux":
        assert size >= min(count, soft)
