"""Workers on other machines: what they play comes from the master, what they measure goes to it.

A worker that does not see the run folder fetches job, trace and contexts in pieces and keeps them in its cache by
digest; its files are shipped as they grow, each piece acknowledged, so that a lost message costs time and no sample.
Everything travels in Locust's own messages.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gevent
import msgspec

from loadgen.errors import InputError
from loadgen.paths import cache_dir
from loadgen.replay.job import JOB_FILE, Job, read_job
from loadgen.trace.reader import open_trace

PIECE = 512 * 1024
_EVERY_S = 1.0

Ask = Callable[[str, dict[str, Any]], dict[str, Any]]
"""(kind, data) -> the master's answer; blocks the greenlet."""


class Source:
    """The master's side: hands out pieces of the files that a run needs, and of no others."""

    def __init__(self, run_dir: Path, job: Job) -> None:
        self._files = {"job": run_dir / JOB_FILE, "trace": Path(job.trace)}
        with open_trace(Path(job.trace)) as trace:
            for ref in trace.blob_refs():
                blob = trace.blob(ref)
                if blob.file is not None:
                    self._files[f"blob/{blob.file}"] = trace.blob_path(ref)
        if job.rendered is not None:
            for path in Path(job.rendered).iterdir():
                self._files[f"rendered/{path.name}"] = path

    def piece(self, name: str, offset: int) -> dict[str, Any]:
        """Names of all files for the name `""`, else size and up to `PIECE` bytes from `offset`."""
        if not name:
            return {"names": sorted(self._files)}
        path = self._files.get(name)
        if path is None:
            return {"error": f"the run has no file {name!r}"}
        with path.open("rb") as file:
            file.seek(offset)
            return {"size": path.stat().st_size, "data": file.read(PIECE)}


class Sink:
    """The master's side: appends what workers ship."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir

    def take(self, name: str, offset: int, data: bytes) -> int:
        """Append a piece that begins at `offset`; returns how much of the file is here now."""
        if Path(name).name != name or not name.endswith(".jsonl"):
            return 0
        path = self._run_dir / name
        size = path.stat().st_size if path.exists() else 0
        if offset <= size < offset + len(data):
            with path.open("ab") as file:
                file.write(data[size - offset :])
            size = offset + len(data)
        return size


def fetch_job(ask: Ask, run: str) -> Path:
    """Bring a run's files here; returns the path of a job file that names local copies. Raises InputError."""
    folder = cache_dir("remote", run)
    names = ask("fetch", {"name": "", "offset": 0}).get("names")
    if not names:
        raise InputError(
            "the master does not hand out the run's files; do master and workers have the same loadgen?"
        )
    for name in names:
        _fetch(ask, name, folder / name)
    job = read_job(folder / "job")
    trace = folder / ("trace" + "".join(Path(job.trace).suffixes))  # the suffix tells how it is compressed
    os.replace(folder / "trace", trace)
    for name in names:
        if name.startswith("blob/"):
            target = folder / name.removeprefix("blob/")
            target.parent.mkdir(parents=True, exist_ok=True)
            os.replace(folder / name, target)
    job.trace, job.run_dir = str(trace), str(folder)
    if job.rendered is not None:
        job.rendered = str(folder / "rendered")
    with open_trace(trace) as opened:
        if opened.sha256 != job.trace_sha256:
            raise InputError("the trace did not arrive as the master has it: its SHA-256 differs")
    path = folder / JOB_FILE
    path.write_bytes(msgspec.json.encode(job))
    return path


def _fetch(ask: Ask, name: str, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, delete=False) as file:
        offset = 0
        while True:
            answer = ask("fetch", {"name": name, "offset": offset})
            if "data" not in answer:
                raise InputError(f"the master could not send {name}: {answer.get('error', 'no word')}")
            file.write(answer["data"])
            offset += len(answer["data"])
            if offset >= answer["size"] or not answer["data"]:
                break
    os.replace(file.name, target)


class Shipper:
    """Sends this worker's files to the master as they grow."""

    def __init__(self, ask: Ask, files: list[Path]) -> None:
        self._ask = ask
        self._sent = dict.fromkeys(files, 0)
        self._greenlet = gevent.spawn(self._run)

    def _run(self) -> None:
        while True:
            gevent.sleep(_EVERY_S)
            self.ship()

    def ship(self) -> None:
        """Send everything that is not there yet."""
        for path in self._sent:
            while path.exists() and (size := path.stat().st_size) > self._sent[path]:
                with path.open("rb") as file:
                    file.seek(self._sent[path])
                    data = file.read(min(PIECE, size - self._sent[path]))
                answer = self._ask("ship", {"name": path.name, "offset": self._sent[path], "data": data})
                if answer.get("kind") == "end":
                    return
                self._sent[path] = int(answer["have"])

    def close(self) -> None:
        """Send the rest and stop."""
        self._greenlet.kill()
        self.ship()
