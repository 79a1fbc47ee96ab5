"""Start a simulated endpoint as a process of its own, and stop it."""

from __future__ import annotations

import contextlib
import json
import select
import subprocess
import sys
import time
from collections.abc import Iterator

from loadgen import lifeline
from loadgen.errors import EXIT_INPUT, InputError, LoadgenError

_READY_S = 60.0


@contextlib.contextmanager
def simulated_endpoint(profile: str, arm: str, scale: float, *, port: int = 0) -> Iterator[str]:
    """The URL of a simulated endpoint on 127.0.0.1, for the length of a `with`.

    Raises InputError with the simulator's own sentence when it refuses to start.
    """
    command = [sys.executable, "-m", "loadgen", "sim", "--profile", profile, "--arm", arm]
    command += ["--scale", str(scale), "--port", str(port), "--json"]
    # A session of its own: a Ctrl-C stops the load first, and the load then stops the endpoint.
    # Nor does the terminal's end reach it then, so it is tied to this process.
    process = subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=lifeline.tied(),
        start_new_session=True,
    )
    try:
        yield _url(process)
    finally:
        process.terminate()
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()


def _url(process: subprocess.Popen[bytes]) -> str:
    assert process.stdout is not None
    assert process.stderr is not None
    deadline = time.monotonic() + _READY_S
    while time.monotonic() < deadline:
        if select.select([process.stdout], [], [], 0.1)[0] and (line := process.stdout.readline()):
            return str(json.loads(line)["url"])
        if process.poll() is not None:
            words = process.stderr.read().decode("utf-8", "replace").strip().removeprefix("loadgen: ")
            kind = InputError if process.returncode == EXIT_INPUT else LoadgenError
            raise kind(f"the simulated endpoint did not start: {words or 'no word'}")
    raise LoadgenError(f"the simulated endpoint was not ready after {_READY_S:g} s")
