"""Open files that a run needs against the limit; each in a process of its own, since a limit once lowered stays so."""

from __future__ import annotations

import subprocess
import sys

import pytest

from loadgen.replay.limits import MAPS_KEEP_FILES, RESERVE, streams_of


@pytest.mark.parametrize(
    ("schedule", "width", "users", "in_flight", "expected"),
    [
        ("sweep", 7, None, None, 7),
        ("sweep", 7, None, 3, 3),
        ("closed", 1, 500, None, 500),
        ("closed", 1, 500, 40, 40),
        ("open", 1, 80, None, 80),
        ("open", 1, None, None, 1),
        ("timed", None, None, 12, 12),
    ],
)
def test_streams(
    schedule: str, width: int | None, users: int | None, in_flight: int | None, expected: int
) -> None:
    assert streams_of(schedule, width=width, users=users, in_flight=in_flight) == expected


CHECK = """
import resource, sys
from loadgen.errors import InputError
from loadgen.replay.limits import require_files
try:
    require_files(int(sys.argv[1]), int(sys.argv[2]) or None, int(sys.argv[3]))
    print(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
except InputError as error:
    print(error)
"""


def check(limits: str, streams: int, processes: int = 0, texts: int = 0) -> str:
    command = f'{limits}; exec "$@"'
    done = subprocess.run(
        ["/bin/sh", "-c", command, "sh", sys.executable, "-c", CHECK, *map(str, (streams, processes, texts))],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


@pytest.mark.parametrize(("streams", "processes"), [(256 - RESERVE, 0), (2 * (256 - RESERVE), 2), (500, 4)])
def test_what_fits_goes_on(streams: int, processes: int) -> None:
    assert check("ulimit -n 256", streams, processes) == "256"


def test_the_soft_limit_is_raised_to_what_is_needed() -> None:
    assert check("ulimit -S -n 100", 300) == str(300 + RESERVE)


def test_mapped_texts_count_in_every_process_where_a_map_keeps_its_file() -> None:
    needed = 100 + (200 if MAPS_KEEP_FILES else 0) + RESERVE
    assert check("ulimit -S -n 100", 200, 2, texts=200) == str(needed)


@pytest.mark.parametrize(
    ("limit", "streams", "processes", "spread"),
    [(256, 257 - RESERVE, 0, 2), (256, 500, 0, 3), (256, 500, 2, 3), (60, 500, 0, None)],
)
def test_what_does_not_fit_is_refused_with_what_would(
    limit: int, streams: int, processes: int, spread: int | None
) -> None:
    said = check(f"ulimit -n {limit}", streams, processes)
    needed = -(-streams // (processes or 1)) + RESERVE
    assert f"need {needed} open files in each, and the limit is {limit}" in said
    assert f"`ulimit -n {needed}`" in said
    assert (f"--processes {spread}" in said) if spread else ("--processes" not in said)
    if spread:
        assert check(f"ulimit -n {limit}", streams, spread) == str(limit)


@pytest.mark.parametrize(
    "words",
    [("--schedule", "closed", "-u", "500"), ("--schedule", "closed", "-u", "500", "--processes", "2"), ("--width", "500")],
)  # fmt: skip
def test_a_run_is_refused_before_anything_is_sent(words: tuple[str, ...]) -> None:
    """The endpoint is one that nothing listens at: it is not even asked."""
    command = [sys.executable, "-m", "loadgen", "run", "--host", "http://127.0.0.1:9", *words]
    done = subprocess.run(
        ["/bin/sh", "-c", 'ulimit -n 256; exec "$@"', "sh", *command], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith("loadgen: 500 streams over ")
    assert done.stderr.count("\n") == 1
