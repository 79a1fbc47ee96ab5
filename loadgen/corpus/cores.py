"""How many cores this process may use: what the scheduler lets it run on, and what its control group lets it spend."""

from __future__ import annotations

import os
from pathlib import Path

_GROUPS = Path("/sys/fs/cgroup")
_OWN = Path("/proc/self/cgroup")


def available() -> int:
    """Cores for this process, at least one. A container with 1.5 CPUs on a large machine has two."""
    return max(1, min(_allowed(), _quota(_GROUPS, _OWN)))


def _allowed() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _quota(groups: Path, own: Path) -> int:
    """The least quota of the process's control group (version 2 or 1) and those above it, in whole cores."""
    least = 1 << 30
    try:
        lines = own.read_text().splitlines()
    except OSError:
        return least
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers and "cpu" not in controllers.split(","):
            continue
        # Inside a container the path may be one of the machine's, which is not there: its own group is the root then.
        group = (groups / "cpu" if controllers else groups) / path.strip("/")
        while group.is_relative_to(groups):
            least = min(least, _cores(group))
            group = group.parent
    return least


def _cores(group: Path) -> int:
    """Quota of one control group in whole cores, rounded up; a huge number where it has none."""
    try:
        if (group / "cpu.max").is_file():
            quota, period = (group / "cpu.max").read_text().split()
        else:
            quota = (group / "cpu.cfs_quota_us").read_text()
            period = (group / "cpu.cfs_period_us").read_text()
        return max(1, -(-int(quota) // int(period))) if int(quota) > 0 else 1 << 30
    except (OSError, ValueError):  # no such file, or `max`
        return 1 << 30
